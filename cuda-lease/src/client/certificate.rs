//! The certificates of a client's connections: read from their files for each connection, with a warning before the
//! client's own expires.

use std::{net::SocketAddr, time::Duration};

use rustls::pki_types::CertificateDer;

use crate::{
    authority::{ClientTls, Fingerprint, TlsError, Token},
    transport,
};

/// The time before the end of a certificate at which the client logs a warning.
const NOTICE: Duration = Duration::from_secs(10 * 60);

/// Certificates, as they were last read from their files.
#[derive(Clone)]
pub(super) struct Certificates {
    tls: ClientTls,
    node: SocketAddr,
    config: quinn::ClientConfig,
    /// The certificate of the client.
    own: Option<CertificateDer<'static>>,
}

impl Certificates {
    /// Reads the files for connections to `node`.
    ///
    /// # Errors
    /// [`TlsError`] names the file that cannot be used.
    pub(super) fn read(tls: ClientTls, node: SocketAddr) -> Result<Self, TlsError> {
        let (mut config, own) = tls.load(node)?;
        config.transport_config(transport::connection());
        Ok(Self { tls, node, config, own })
    }

    /// Reads the files again, for a certificate that was renewed. If they cannot be used, the earlier ones stay.
    pub(super) fn read_again(&mut self) {
        match Self::read(self.tls.clone(), self.node) {
            Ok(read) => *self = read,
            Err(error) => {
                tracing::warn!(%error, "the certificates were not read again; the earlier ones stay in use");
            }
        }
    }

    pub(super) fn config(&self) -> quinn::ClientConfig {
        self.config.clone()
    }

    /// Returns whether a token is for the key of the client's certificate. Any other needs to be renewed before its use.
    pub(super) fn has_key_of(&self, token: &[u8]) -> bool {
        let (Some(own), Ok(token)) = (&self.own, Token::from_bytes(token)) else { return true };
        let issued_to = token.unverified_claims().client;
        issued_to == Fingerprint::UNAUTHENTICATED || Fingerprint::of(own) == Ok(issued_to)
    }

    /// Logs a warning before the certificate expires, unless its file has another one by then, or the connection is
    /// closed.
    pub(super) async fn warn_before_end<T>(
        self,
        closed: impl Future<Output = T>,
        ends_in: Duration,
    ) {
        tokio::select! {
            biased;
            _ = closed => return,
            () = tokio::time::sleep(ends_in.saturating_sub(NOTICE)) => {}
        }
        let is_renewed = match Self::read(self.tls, self.node) {
            Ok(read) => read.own != self.own,
            Err(_) => false,
        };
        if !is_renewed {
            let seconds = ends_in.min(NOTICE).as_secs();
            tracing::warn!(
                seconds, node = %self.node,
                "the certificate of this client expires soon, and then the node closes the connection; renew it in its \
                 file, which is read when the connection is resumed"
            );
        }
    }
}

#[cfg(test)]
#[cfg(feature = "certs")]
mod tests {
    use std::{
        fmt::Write,
        future::{pending, ready},
        sync::{Arc, Mutex},
    };

    use tracing::{
        Event, Metadata, Subscriber,
        field::{Field, Visit},
        span,
    };

    use super::*;
    use crate::authority::DevelopmentCertificates;

    /// Collects the texts of warnings.
    #[derive(Clone, Default)]
    struct Warnings(Arc<Mutex<String>>);

    impl Visit for Warnings {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            writeln!(self.0.lock().unwrap(), "{field}: {value:?}").unwrap();
        }
    }

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::WARN
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test]
    async fn client_warns_before_its_certificate_expires_unless_it_is_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let certificates = DevelopmentCertificates::new(directory.path()).client("alice");
        certificates.create().unwrap();
        let file = |name| directory.path().join(name);
        let tls = ClientTls::with_ca(file("ca.pem"));
        let tls = tls.client_certificate(file("alice.pem"), file("alice.key"));
        let read = Certificates::read(tls, ([127, 0, 0, 1], 1).into()).unwrap();
        let warnings = Warnings::default();
        let _default = tracing::subscriber::set_default(warnings.clone());
        let warned = || std::mem::take(&mut *warnings.0.lock().unwrap());
        read.clone().warn_before_end(pending::<()>(), NOTICE).await;
        let text = warned();
        assert!(text.contains("expires soon") && text.contains("seconds: 600"), "{text}");
        read.clone().warn_before_end(ready(()), Duration::ZERO).await;
        assert_eq!(warned(), "");
        let early = read.clone().warn_before_end(pending::<()>(), 2 * NOTICE);
        assert!(tokio::time::timeout(Duration::from_millis(10), early).await.is_err());
        certificates.replace().create().unwrap();
        read.warn_before_end(pending::<()>(), NOTICE).await;
        assert_eq!(warned(), "");
    }
}
