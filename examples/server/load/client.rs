//! The clients: one that waits for its responses, one that closes its connection, and one that never reads.

use std::{error::Error, net::SocketAddr};

use axum::http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt, net::TcpStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A response.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// A connection for many requests. It opens again if the server has closed it.
pub(crate) struct Connection {
    server: SocketAddr,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    pub(crate) const fn new(server: SocketAddr) -> Self {
        Self { server, open: None }
    }

    /// Sends a request and returns the response. A server may close a kept connection at any time, so a request that
    /// failed on one is sent again on a new one.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: Bytes) -> Result<Response> {
        if let Some(open) = self.open.take()
            && let Ok(response) = self.send_on(open, method, path, body.clone()).await
        {
            return Ok(response);
        }
        let stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        let (open, connection) = handshake(TokioIo::new(stream)).await?;
        // An error of the connection is also an error of the request.
        tokio::spawn(connection);
        self.send_on(open, method, path, body).await
    }

    async fn send_on(
        &mut self,
        mut open: SendRequest<Full<Bytes>>,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Response> {
        open.ready().await?;
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, "localhost").body(Full::new(body))?;
        let response = open.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        self.open = Some(open);
        Ok(Response { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// Sends a request over a connection of its own, and closes the connection at once.
pub(crate) async fn cancel(server: SocketAddr, body: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    let length = body.len();
    let head =
        format!("POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    Ok(())
}

/// Sends requests for the page and reads no response, until the server closes the connection.
pub(crate) async fn never_read(server: SocketAddr) {
    let requests = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    if let Ok(mut stream) = TcpStream::connect(server).await {
        while stream.write_all(requests.as_bytes()).await.is_ok() {}
    }
}
