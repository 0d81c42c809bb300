//! Starts the proxy on a file, waits until it says that it serves, and ends it through its admin.
//!
//! Used by the `examples` rule. It talks to the process that it started and to no other.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than any start on a busy machine; a start that needs more has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a process that cannot notify us is asked again.
const POLL: Duration = Duration::from_millis(20);

/// Whether `binary run -c file` becomes ready and ends with 0 when told to; else why not.
pub fn serves(binary: &Path, file: &Path, scratch: &Path) -> Result<(), String> {
    let address_file = scratch.join("admin-address");
    let _ = std::fs::remove_file(&address_file);
    let log = scratch.join("log");
    let stderr = std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut child = Command::new(binary)
        .current_dir(scratch)
        .arg("run")
        .arg("-c")
        .arg(file)
        .args(["--concurrency", "1", "--admin-address-path"])
        .arg(&address_file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
    let result = observe(&mut child, &address_file);
    if result.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    result.map_err(|why| format!("{why}\n{}", std::fs::read_to_string(&log).unwrap_or_default()))
}

fn observe(child: &mut Child, address_file: &Path) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let address = loop {
        if let Some(status) = ended(child)? {
            return Err(format!("ended with {status} before it was ready"));
        }
        let address = std::fs::read_to_string(address_file).unwrap_or_default();
        if !address.is_empty()
            && request(address.trim(), "GET", "/ready").is_ok_and(|it| it.starts_with("HTTP/1.1 200"))
        {
            break address.trim().to_owned();
        }
        pause(deadline, "not ready")?;
    };
    // The answer may be cut short by the end that it announces.
    let _ = request(&address, "POST", "/quitquitquit");
    loop {
        match ended(child)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("ended with {status} after /quitquitquit")),
            None => pause(deadline, "still there after /quitquitquit")?,
        }
    }
}

fn ended(child: &mut Child) -> Result<Option<ExitStatus>, String> {
    child.try_wait().map_err(|error| format!("wait: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "a foreign process is polled: nothing here tells when it is ready")]
fn pause(deadline: Instant, state: &str) -> Result<(), String> {
    if Instant::now() > deadline {
        return Err(format!("{state} after {} s", PATIENCE.as_secs()));
    }
    std::thread::sleep(POLL);
    Ok(())
}

fn request(address: &str, method: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_is_not_ready() {
        let scratch = std::env::temp_dir().join(format!("postrider-xtask-launch-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        let why = serves(Path::new("/bin/false"), Path::new("x.yaml"), &scratch).unwrap_err();
        std::fs::remove_dir_all(&scratch).unwrap();
        assert!(why.starts_with("ended with exit status: 1 before it was ready"), "{why}");
    }
}
