//! The HTTP server of a stand-in: it checks the access, and its connections can be cut on purpose.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::{Request, Response};
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::answer::read;
use super::clock::http;
use super::control;
use super::door::CONTROL;
use super::shared::{Shared, StandIn};
use crate::error::{Doing as _, ErrorKind, Result};

/// Binds a port of the loopback, 0 for any free one.
pub(super) async fn bind(port: u16, stand_in: &str) -> Result<(TcpListener, SocketAddr)> {
    let doing = || format!("start the stand-in for {stand_in}");
    let listener = TcpListener::bind(("127.0.0.1", port)).await.doing(ErrorKind::Internal, doing)?;
    let address = listener.local_addr().doing(ErrorKind::Internal, doing)?;
    Ok((listener, address))
}

/// Serves until the task is aborted.
pub(super) fn spawn<T: StandIn>(listener: TcpListener, shared: Shared<T>) -> JoinHandle<()> {
    let router = axum::Router::new().fallback(answer::<T>).with_state(shared);
    let service = router.into_make_service_with_connect_info::<Wire>();
    tokio::spawn(async move {
        // It ends when dropped, without a result.
        let _ = axum::serve(Breakable(listener), service).await;
    })
}

/// Answers one request. Without a connection to cut, the body of the answer fails with an error instead.
pub(super) async fn answer<T: StandIn>(
    State(shared): State<Shared<T>>,
    request: Request<HttpBody>,
) -> Response<HttpBody> {
    let (parts, body) = request.into_parts();
    if let Some(refused) = shared.door().refuses(&parts) {
        return refused.into_response(None);
    }
    let (service, ask) = read(&parts, body).await;
    if service == CONTROL {
        let answer = control::answer(&mut *shared.state(), &ask);
        return answer.into_response(None);
    }
    let answer = T::answer(&shared, &service, &ask, parts.uri.path()).await;
    if let Some(answer) = answer {
        let date = http(shared.state().clock().now());
        return answer.into_response(Some(date));
    }
    match parts.extensions.get::<ConnectInfo<Wire>>() {
        Some(ConnectInfo(wire)) => {
            wire.cut();
            Response::new(HttpBody::empty())
        }
        None => {
            let broken = futures_util::stream::once(async { Err::<Vec<u8>, _>(std::io::Error::other("cut")) });
            Response::new(HttpBody::from_stream(broken))
        }
    }
}

/// A listener whose connections the server can cut.
struct Breakable(TcpListener);

impl Listener for Breakable {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            if let Ok((stream, from)) = self.0.accept().await {
                // Without this, small answers are only slower.
                let _ = stream.set_nodelay(true);
                return (Connection { stream, wire: Wire::default() }, from);
            }
            // Most likely out of file descriptors: other connections will close theirs.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// A handle that cuts one connection.
#[derive(Debug, Clone, Default)]
struct Wire(Arc<AtomicBool>);

impl Wire {
    fn cut(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_cut(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Connected<IncomingStream<'_, Breakable>> for Wire {
    fn connect_info(stream: IncomingStream<'_, Breakable>) -> Self {
        stream.io().wire.clone()
    }
}

/// A connection that neither reads nor sends once it is cut.
struct Connection {
    stream: TcpStream,
    wire: Wire,
}

fn reset<T>() -> Poll<std::io::Result<T>> {
    Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()))
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.wire.is_cut() { reset() } else { Pin::new(&mut self.stream).poll_read(context, buffer) }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        if self.wire.is_cut() { reset() } else { Pin::new(&mut self.stream).poll_write(context, bytes) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
