//! Where origins on asynchronous libraries live: a port of their own, served on a thread of its own.

use std::future::Future;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use tokio::net::TcpStream;

/// Accepts on a free port until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `serve` takes each connection.
    pub fn start<F: Future<Output = ()> + Send + 'static>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("O_NONBLOCK");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                let accepting = async {
                    loop {
                        let (stream, _) = listener.accept().await.expect("a connection");
                        tokio::spawn(serve(stream));
                    }
                };
                tokio::select! {
                    () = accepting => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
