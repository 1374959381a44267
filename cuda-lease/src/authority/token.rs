//! Lease tokens: the proof that a client holds a lease.
//!
//! A token names the lease, its generation and the key of the client that it was issued to. A message authentication
//! code (MAC) with the node's key protects these fields. The token is not encrypted, but the MAC makes it a secret: a
//! client that presents a certificate with the same key and this token holds the lease. The lease has a tenant, so the
//! token does not name it: the node accepts a token only from a client of that tenant.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 8 | lease id, little-endian |
//! | 9 | 4 | generation, little-endian |
//! | 13 | 8 | serial number, little-endian |
//! | 21 | 32 | fingerprint of the client's key |
//! | 53 | 32 | MAC: keyed blake3 of bytes 0 to 52 |
//!
//! The text form is `lt1_` and the bytes in lowercase hexadecimal.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use thiserror::Error;

use super::identity::Fingerprint;

const VERSION: u8 = 1;
const PREFIX: &str = "lt1_";
const SIGNED: usize = 53;
const LENGTH: usize = SIGNED + blake3::OUT_LEN;

/// The contents of a lease token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The lease.
    pub lease: u64,
    /// The generation of the lease. The lease table decides whether it is current.
    pub generation: u32,
    /// The number of the token among those of the node, so that two tokens of one lease differ.
    pub serial: u64,
    /// The key of the client that the token was issued to.
    pub client: Fingerprint,
}

/// A lease token that has the right form. [`TokenKey::verify`] decides whether it is genuine.
///
/// `Debug` prints the claims and not the MAC. There is no `Display`, so a token is not logged by accident; use
/// [`to_text`](Self::to_text).
#[derive(Clone)]
pub struct Token([u8; LENGTH]);

impl Token {
    /// The length of a token in bytes.
    pub const LENGTH: usize = LENGTH;

    /// Parses the binary form of a token. It does not check the MAC.
    ///
    /// # Errors
    ///
    /// [`TokenError::UnknownVersion`] if the first byte is another version than 1, else [`TokenError::Malformed`] if
    /// the length is not [`LENGTH`](Self::LENGTH).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenError> {
        match bytes.first() {
            Some(&VERSION) => {}
            Some(&version) => return Err(TokenError::UnknownVersion { version: version.into() }),
            None => return Err(TokenError::Malformed),
        }
        bytes.try_into().map(Self).map_err(|_| TokenError::Malformed)
    }

    /// Returns the binary form.
    pub fn as_bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    /// Returns the text form, for a command line or a file. It is a secret, so do not log it.
    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}", HEXLOWER.encode(&self.0))
    }

    /// Returns the claims without a check of the MAC. A client may use them; a node uses [`TokenKey::verify`].
    pub fn unverified_claims(&self) -> Claims {
        Claims {
            lease: u64::from_le_bytes(self.field(1)),
            generation: u32::from_le_bytes(self.field(9)),
            serial: u64::from_le_bytes(self.field(13)),
            client: Fingerprint::from_bytes(self.field(21)),
        }
    }

    fn field<const N: usize>(&self, offset: usize) -> [u8; N] {
        std::array::from_fn(|index| self.0[offset + index])
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let Some(hex) = text.strip_prefix(PREFIX) else {
            return Err(text_version(text)
                .map_or(TokenError::Malformed, |version| TokenError::UnknownVersion { version }));
        };
        if hex.len() != 2 * LENGTH {
            return Err(TokenError::Malformed);
        }
        let bytes = HEXLOWER.decode(hex.as_bytes()).map_err(|_| TokenError::Malformed)?;
        Self::from_bytes(&bytes)
    }
}

/// Returns the version of a text of the form `lt<version>_...`, if it is another version than this one.
fn text_version(text: &str) -> Option<u32> {
    let (version, _) = text.strip_prefix("lt")?.split_once('_')?;
    let digits = version.bytes().all(|byte| byte.is_ascii_digit());
    version.parse().ok().filter(|version| digits && *version != u32::from(VERSION))
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.unverified_claims()).finish_non_exhaustive()
    }
}

/// The secret key with which a node issues and verifies tokens.
///
/// A node with a state folder keeps its key there, in a file that only its user can read. Any other node draws a key when
/// it starts and keeps it in memory, so its tokens are not valid after a restart.
#[derive(Clone)]
pub struct TokenKey([u8; blake3::KEY_LEN]);

impl TokenKey {
    /// Makes a key from 32 secret random bytes.
    pub fn from_bytes(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Issues a token with these claims.
    pub fn issue(&self, claims: &Claims) -> Token {
        let mut bytes = [0; LENGTH];
        bytes[0] = VERSION;
        bytes[1..9].copy_from_slice(&claims.lease.to_le_bytes());
        bytes[9..13].copy_from_slice(&claims.generation.to_le_bytes());
        bytes[13..21].copy_from_slice(&claims.serial.to_le_bytes());
        bytes[21..SIGNED].copy_from_slice(claims.client.as_bytes());
        let mac = self.mac(&bytes);
        bytes[SIGNED..].copy_from_slice(mac.as_bytes());
        Token(bytes)
    }

    /// Checks that this key issued a token, for any client. Only a request that issues a new token accepts the token of
    /// another client, after it has checked the tenant.
    ///
    /// The time that the check of the MAC takes does not depend on its bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`Token::from_bytes`], and [`TokenError::Forged`] if this key did not issue the token.
    pub fn authenticate(&self, token: &[u8]) -> Result<Claims, TokenError> {
        let token = Token::from_bytes(token)?;
        // The comparison of two `blake3::Hash` takes constant time.
        if self.mac(&token.0) != blake3::Hash::from_bytes(token.field(SIGNED)) {
            return Err(TokenError::Forged);
        }
        Ok(token.unverified_claims())
    }

    /// Checks a token in binary form, presented by a client whose certificate has the key `presented`.
    ///
    /// # Errors
    ///
    /// The errors of [`authenticate`](Self::authenticate), and [`TokenError::OtherClient`] if the token was issued to a
    /// client with another key.
    pub fn verify(&self, token: &[u8], presented: Fingerprint) -> Result<Claims, TokenError> {
        let claims = self.authenticate(token)?;
        if claims.client == presented { Ok(claims) } else { Err(TokenError::OtherClient) }
    }

    fn mac(&self, token: &[u8; LENGTH]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, &token[..SIGNED])
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKey").finish_non_exhaustive()
    }
}

/// A token that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The bytes or the text do not have the form of a token.
    #[error(
        "the lease token is malformed: a token has {LENGTH} bytes, as text \"lt1_\" and {} hexadecimal digits; copy \
         it in full",
        2 * LENGTH
    )]
    Malformed,
    /// The token has a version that this build does not know.
    #[error(
        "the lease token has version {version}, this build knows version {VERSION}; update the older side"
    )]
    UnknownVersion {
        /// The version of the token.
        version: u32,
    },
    /// The node's key did not issue the token.
    #[error(
        "the lease token was not issued by this node since its last start; acquire a new lease"
    )]
    Forged,
    /// The token was issued to a client with another key.
    #[error(
        "the lease token was issued to a certificate with another key; renew the lease with this certificate first, \
         which gives a token for its key"
    )]
    OtherClient,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: TokenKey = TokenKey([7; 32]);
    const CLAIMS: Claims = Claims {
        lease: 0x0102_0304_0506_0708,
        generation: 0x0a0b_0c0d,
        serial: 0x1112_1314_1516_1718,
        client: Fingerprint::from_bytes([0xcc; 32]),
    };

    fn claims() -> impl Strategy<Value = Claims> {
        (any::<u64>(), any::<u32>(), any::<u64>(), any::<[u8; 32]>()).prop_map(
            |(lease, generation, serial, client)| Claims {
                lease,
                generation,
                serial,
                client: Fingerprint::from_bytes(client),
            },
        )
    }

    proptest! {
        #[test]
        fn issued_token_verifies_in_both_forms(key: [u8; 32], claims in claims()) {
            let key = TokenKey::from_bytes(key);
            let token = key.issue(&claims);
            prop_assert_eq!(key.verify(token.as_bytes(), claims.client), Ok(claims));
            let parsed: Token = token.to_text().parse().unwrap();
            prop_assert_eq!(parsed.as_bytes(), token.as_bytes());
            prop_assert_eq!(parsed.unverified_claims(), claims);
        }

        #[test]
        fn other_client_is_refused(claims in claims(), other: [u8; 32]) {
            let other = Fingerprint::from_bytes(other);
            prop_assume!(other != claims.client);
            let token = KEY.issue(&claims);
            prop_assert_eq!(KEY.verify(token.as_bytes(), other), Err(TokenError::OtherClient));
        }

        #[test]
        fn random_bytes_never_verify(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(KEY.verify(&bytes, Fingerprint::UNAUTHENTICATED).is_err());
        }

        #[test]
        fn random_bytes_of_the_right_form_are_forged(mut bytes in proptest::collection::vec(any::<u8>(), LENGTH)) {
            bytes[0] = VERSION;
            let client = Token::from_bytes(&bytes).unwrap().unverified_claims().client;
            prop_assert_eq!(KEY.verify(&bytes, client), Err(TokenError::Forged));
        }

        #[test]
        fn random_text_never_panics(text in "(lt[0-9]{0,12}_)?.{0,200}") {
            prop_assert!(text.parse::<Token>().is_err());
        }
    }

    #[test]
    fn binary_form_has_the_documented_layout() {
        let token = KEY.issue(&CLAIMS);
        let mut expected = vec![1, 8, 7, 6, 5, 4, 3, 2, 1, 0x0d, 0x0c, 0x0b, 0x0a];
        expected.extend([0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        expected.extend([0xcc; 32]);
        let mac = blake3::keyed_hash(&[7; 32], &expected);
        expected.extend(mac.as_bytes());
        assert_eq!(token.as_bytes().as_slice(), expected);
        assert!(token.to_text().starts_with("lt1_010807060504030201"), "{}", token.to_text());
    }

    #[test]
    fn every_single_bit_flip_is_refused() {
        let token = KEY.issue(&CLAIMS);
        for bit in 0..8 * LENGTH {
            let mut bytes = *token.as_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // The flipped bit may be in the fingerprint, so the changed token's own client presents it.
            let client = Fingerprint::from_bytes(Token(bytes).field(21));
            match KEY.verify(&bytes, client) {
                Err(TokenError::UnknownVersion { .. }) => assert!(bit < 8),
                Err(TokenError::Forged) => assert!(bit >= 8),
                result => panic!("bit {bit}: {result:?}"),
            }
        }
    }

    #[test]
    fn every_other_length_is_refused() {
        let mut bytes = KEY.issue(&CLAIMS).as_bytes().to_vec();
        bytes.push(0);
        for length in (0..=LENGTH + 1).filter(|length| *length != LENGTH) {
            let result = KEY.verify(&bytes[..length], CLAIMS.client);
            assert_eq!(result, Err(TokenError::Malformed), "{length}");
        }
    }

    #[test]
    fn token_of_another_key_is_forged() {
        let token = TokenKey::from_bytes([1; 32]).issue(&CLAIMS);
        assert_eq!(KEY.verify(token.as_bytes(), CLAIMS.client), Err(TokenError::Forged));
    }

    #[test]
    fn text_has_one_form_only() {
        let text = KEY.issue(&CLAIMS).to_text();
        let parse = |text: &str| text.parse::<Token>().map(drop);
        assert_eq!(text.len(), 4 + 2 * LENGTH);
        assert_eq!(parse(&text), Ok(()));
        let malformed = [
            String::new(),
            "lt1_".to_owned(),
            text.to_uppercase(),
            format!("lt1_{}", text[4..].to_uppercase()),
            format!("{text}\n"),
            format!(" {text}"),
            text[..text.len() - 1].to_owned(),
            format!("{}zz", &text[..text.len() - 2]),
            format!("lt_{}", &text[4..]),
            format!("lt01_{}", &text[4..]),
            format!("lt+2_{}", &text[4..]),
            format!("lt99999999999_{}", &text[4..]),
        ];
        for text in malformed {
            assert_eq!(parse(&text), Err(TokenError::Malformed), "{text:?}");
        }
        let newer = TokenError::UnknownVersion { version: 2 };
        assert_eq!(parse(&text.replace("lt1_", "lt2_")), Err(newer));
        assert_eq!(parse(&text.replace("lt1_01", "lt1_02")), Err(newer));
        assert_eq!(KEY.verify(&[2], CLAIMS.client), Err(newer));
    }

    #[test]
    fn debug_prints_no_secret() {
        let token = KEY.issue(&CLAIMS);
        let shown = format!("{token:?} {token:#?}");
        assert!(shown.contains(&CLAIMS.client.to_string()), "{shown}");
        assert!(!shown.contains(&HEXLOWER.encode(&token.0[SIGNED..SIGNED + 4])), "{shown}");
        assert!(!shown.contains(&format!("{:?}", &token.0[SIGNED..])), "{shown}");
        assert_eq!(format!("{KEY:?}"), "TokenKey { .. }");
    }

    #[test]
    fn errors_say_what_to_do() {
        assert!(
            TokenError::Malformed.to_string().contains("85 bytes"),
            "{}",
            TokenError::Malformed
        );
        assert!(TokenError::Forged.to_string().contains("acquire a new lease"));
    }
}
