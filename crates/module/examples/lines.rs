//! Writes a line for each record to the file that the configuration names.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use postrider_module::{AccessLogger, Attribute, Counter, Fields, Level, LoggerSetup, Record, Refusal, entry, log};

struct Lines {
    path: PathBuf,
    written: Counter,
}

impl AccessLogger for Lines {
    type State = File;

    fn new(setup: &mut LoggerSetup<'_>) -> Result<Lines, Refusal> {
        let path = std::str::from_utf8(setup.config())?;
        if path.is_empty() {
            return Err("there is no path".into());
        }
        Ok(Lines { path: path.into(), written: setup.counter("written")? })
    }

    fn begin(&self) -> Option<File> {
        let opened = OpenOptions::new().append(true).create(true).open(&self.path);
        opened.inspect_err(|error| log(Level::Error, format_args!("{}: {error}", self.path.display()))).ok()
    }

    fn log(&self, file: &mut File, record: &Record<'_>) {
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or(b"-")).into_owned();
        let agent = record.field(Fields::Request, "user-agent");
        assert!(agent != Some(b"panic"), "as the client wants it");
        let (received, sent) = record.sizes();
        let line = format!(
            "{} {} {} {} {} {} {received} {sent} {} {}\n",
            record.moment(),
            record.status(),
            text(record.field(Fields::Request, ":method")),
            text(agent),
            text(record.text(Attribute::ResponseCodeDetails)),
            text(record.cluster()),
            text(record.metadata_text("knock", "who")),
            record.times().1.is_some(),
        );
        // One write for each line: workers share the file.
        if file.write_all(line.as_bytes()).is_ok() {
            // It is of this configuration.
            let _ = record.count(self.written, 1);
        }
    }

    fn flush(&self, file: &mut File) {
        // Nobody is left who could be told.
        let _ = file.flush();
    }
}

entry!(logger = Lines);
