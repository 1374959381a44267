//! Clients over TCP.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{Result, server::LONG};

/// Returns the text of a request. `line` has the method and the path.
pub fn text(line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

/// Sends a request over a connection of its own and returns the response.
pub async fn request(server: SocketAddr, line: &str, body: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(server).await?;
    connection.write_all(text(line, "Connection: close\r\n", body).as_bytes()).await?;
    rest(connection).await
}

/// Sends bytes over a connection of its own, leaves it open, and returns the bytes that the server sends until it
/// closes the connection.
pub async fn until_closed(server: SocketAddr, sent: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(server).await?;
    connection.write_all(sent.as_bytes()).await?;
    rest(connection).await
}

/// Reads until the server closes the connection. A reset after a response is also an end, because the server does not
/// read the rest of a request that it refuses.
async fn rest(mut connection: TcpStream) -> io::Result<String> {
    let mut response = Vec::new();
    match timeout(LONG, connection.read_to_end(&mut response)).await? {
        Err(error) if response.is_empty() => return Err(error),
        _ => {}
    }
    String::from_utf8(response).map_err(io::Error::other)
}

/// A connection for several requests.
pub struct Connection(TcpStream);

impl Connection {
    pub async fn open(server: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(server).await.map(Self)
    }

    pub async fn send(&mut self, text: &str) -> io::Result<()> {
        timeout(LONG, self.0.write_all(text.as_bytes())).await?
    }

    /// Whether the server has sent bytes that are not read yet.
    pub fn has_response(&self) -> bool {
        !matches!(self.0.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Reads one response with a `Content-Length`. Returns `None` if the server has closed the connection before it.
    ///
    /// # Errors
    /// The server has closed the connection within the response.
    pub async fn response(&mut self) -> io::Result<Option<String>> {
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_ascii_lowercase();
                let length = head.split_once("content-length: ").map_or("0", |(_, rest)| rest);
                let length = length.lines().next().unwrap_or_default().parse();
                if body.len() >= length.map_err(io::Error::other)? {
                    return Ok(Some(text.into_owned()));
                }
            }
            let mut part = [0; 4096];
            match timeout(LONG, self.0.read(&mut part)).await? {
                Ok(0) if read.is_empty() => return Ok(None),
                Err(_) if read.is_empty() => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => read.extend_from_slice(&part[..length]),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the value of a metric in OpenMetrics text.
pub fn value(text: &str, name: &str) -> Result<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.ok_or(format!("no {name} in {text}"))?.parse()?)
}
