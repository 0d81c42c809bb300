//! `demo-upstream`: a small HTTP/1.1 origin that answers what it was asked, to try a proxy with. Not for production: it is
//! what `make run` and the quickstart put behind the proxy.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::exit::Exit;
use crate::terminal;

/// Connections at a time; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 1024;

/// Bytes of a request body; a longer one is answered with 413.
const MAX_BODY_BYTES: usize = 16 << 20;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
    pub listen: SocketAddr,
}

pub fn run(arguments: &Arguments) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return terminal::fail(format_args!("cannot start: {error}")),
    };
    runtime.block_on(serve(arguments.listen))
}

async fn serve(address: SocketAddr) -> Exit {
    let bound = TcpListener::bind(address).await.and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address, signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    });
    let (listener, address, mut terminate, mut interrupt) = match bound {
        Ok(bound) => bound,
        Err(error) => return terminal::fail(format_args!("cannot listen on {address}: {error}")),
    };
    eprintln!("demo upstream on http://{address}");
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            _ = terminate.recv() => return Exit::Done,
            _ = interrupt.recv() => return Exit::Done,
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(async move {
                        let _place = place;
                        serve_connection(stream).await;
                    });
                }
                // The peer gave up, or descriptors ran out for a moment.
                Err(_) => tokio::task::yield_now().await,
            },
        }
    }
}

async fn serve_connection(stream: TcpStream) {
    // Nagle would hold back the second part of an answer.
    let _ = stream.set_nodelay(true);
    // A connection that breaks is its client's business.
    let _ = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut text = format!("Postrider's demo upstream saw:\n\n{} {} {:?}\n", head.method, head.uri, head.version);
    for (name, value) in &head.headers {
        let _ = writeln!(text, "{name}: {}", value.as_bytes().escape_ascii());
    }
    let mut status = StatusCode::OK;
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => {
            let _ = writeln!(text, "\nand a body of {} bytes", body.to_bytes().len());
        }
        Err(error) if error.is::<LengthLimitError>() => {
            status = StatusCode::PAYLOAD_TOO_LARGE;
            let _ = writeln!(text, "\nand a body of more than {MAX_BODY_BYTES} bytes");
        }
        Err(error) => {
            status = StatusCode::BAD_REQUEST;
            let _ = writeln!(text, "\nand a broken body: {error}");
        }
    }
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}
