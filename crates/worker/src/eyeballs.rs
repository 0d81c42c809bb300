//! One connection out of several attempts: the first that succeeds (RFC 8305 section 5).

use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Sleep;

/// How long an attempt has before the next one begins beside it, as in Envoy.
const HEAD_START: Duration = Duration::from_millis(300);

/// Runs attempts one after the other, each with a head start before the next; one that fails lets the next begin at once.
/// Those that came too late are dropped.
///
/// # Errors
/// That of the attempt that failed last.
pub(crate) async fn first<T, F>(attempts: impl IntoIterator<Item = F>) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = attempts.into_iter();
    let mut running: Vec<Pin<Box<F>>> = Vec::new();
    let mut pause: Option<Pin<Box<Sleep>>> = None;
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut exhausted = false;
    std::future::poll_fn(|cx| {
        loop {
            let is_over = |pause: &mut Pin<Box<Sleep>>| pause.as_mut().poll(cx).is_ready();
            let mut begins = !exhausted && pause.as_mut().is_none_or(is_over);
            let mut done = None;
            running.retain_mut(|attempt| {
                if done.is_some() {
                    return true;
                }
                match attempt.as_mut().poll(cx) {
                    Poll::Ready(Ok(made)) => done = Some(made),
                    Poll::Ready(Err(error)) => {
                        failure = error;
                        begins = true;
                    }
                    Poll::Pending => return true,
                }
                false
            });
            if let Some(made) = done {
                return Poll::Ready(Ok(made));
            }
            let next = if begins && !exhausted { waiting.next() } else { None };
            match next {
                Some(attempt) => {
                    running.push(Box::pin(attempt));
                    pause = Some(Box::pin(tokio::time::sleep(HEAD_START)));
                }
                None => {
                    exhausted |= begins;
                    return match running.is_empty() && exhausted {
                        true => Poll::Ready(Err(std::mem::replace(&mut failure, io::ErrorKind::Other.into()))),
                        false => Poll::Pending,
                    };
                }
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::time::Instant;

    use super::*;

    /// What an attempt does, and after how many milliseconds; `None` is never.
    type Script = (Option<u64>, Result<u8, u8>);

    /// The outcome, when it was there, and when each attempt began, in milliseconds.
    fn run(scripts: &[Script]) -> (Result<u8, String>, u128, Vec<u128>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let began = Instant::now();
            let starts = Rc::new(RefCell::new(Vec::new()));
            let attempts = scripts.iter().map(|(after, outcome)| {
                let starts = starts.clone();
                async move {
                    starts.borrow_mut().push(began.elapsed().as_millis());
                    match after {
                        Some(after) => tokio::time::sleep(Duration::from_millis(*after)).await,
                        None => std::future::pending().await,
                    }
                    outcome.map_err(|number| io::Error::other(number.to_string()))
                }
            });
            let outcome = first(attempts).await.map_err(|error| error.to_string());
            (outcome, began.elapsed().as_millis(), starts.take())
        })
    }

    #[test]
    fn the_first_that_succeeds_wins_and_later_ones_do_not_begin() {
        assert_eq!(run(&[(Some(20), Ok(1)), (Some(0), Ok(2))]), (Ok(1), 20, vec![0]));
    }

    #[test]
    fn one_that_hangs_is_overtaken_after_its_head_start() {
        assert_eq!(run(&[(None, Ok(1)), (Some(20), Ok(2)), (None, Ok(3))]), (Ok(2), 320, vec![0, 300]));
        assert_eq!(run(&[(Some(310), Ok(1)), (Some(20), Ok(2))]), (Ok(1), 310, vec![0, 300]));
    }

    #[test]
    fn one_that_fails_lets_the_next_begin_at_once_and_start_its_own_head_start() {
        let scripts = [(Some(50), Err(1)), (None, Ok(2)), (Some(5), Ok(3))];
        assert_eq!(run(&scripts), (Ok(3), 355, vec![0, 50, 350]));
        // An older attempt goes on meanwhile.
        assert_eq!(run(&[(Some(330), Ok(1)), (Some(10), Err(2)), (None, Ok(3))]), (Ok(1), 330, vec![0, 300, 310]));
    }

    #[test]
    fn when_all_fail_the_last_failure_is_told() {
        assert_eq!(run(&[(Some(400), Err(1)), (Some(10), Err(2))]), (Err("1".to_owned()), 400, vec![0, 300]));
        assert_eq!(run(&[(Some(0), Err(1))]).0, Err("1".to_owned()));
        assert!(run(&[]).0.is_err());
    }
}
