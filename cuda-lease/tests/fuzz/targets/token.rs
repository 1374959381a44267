//! The parser of tokens.

use cuda_lease::authority::{Claims, Fingerprint, Token, TokenKey};

/// Reads the bytes as a token in both forms. None may verify, unless the key has issued exactly these bytes.
pub fn token(bytes: &[u8]) {
    let key = TokenKey::from_bytes([7; 32]);
    if let Ok(token) = Token::from_bytes(bytes) {
        assert_eq!(token.as_bytes().as_slice(), bytes);
        genuine(&key, &token, bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<Token>() {
        Ok(token) => {
            assert_eq!(token.to_text(), text);
            genuine(&key, &token, token.as_bytes());
        }
        Err(error) => assert!(error.to_string().len() < 200),
    }
    one_byte_changed(&key, bytes);
}

fn genuine(key: &TokenKey, token: &Token, bytes: &[u8]) {
    let claims = token.unverified_claims();
    match key.verify(bytes, claims.client) {
        Ok(verified) => assert_eq!(key.issue(&verified).as_bytes().as_slice(), bytes),
        Err(_) => assert_ne!(key.issue(&claims).as_bytes().as_slice(), bytes),
    }
}

/// Issues a token with claims of these bytes, and changes one of its bytes.
fn one_byte_changed(key: &TokenKey, bytes: &[u8]) {
    let mut choices = [0; 54];
    choices.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| choices[at + i]));
    let client = Fingerprint::from_bytes(std::array::from_fn(|i| choices[20 + i]));
    let generation = number(8) as u32;
    let claims = Claims { lease: number(0), generation, serial: number(12), client };
    let mut token = *key.issue(&claims).as_bytes();
    assert_eq!(key.verify(&token, client), Ok(claims));
    let (at, change) = (usize::from(choices[52]) % token.len(), choices[53]);
    token[at] ^= change;
    // A changed certificate must not help either.
    let presented = Token::from_bytes(&token).map(|token| token.unverified_claims().client);
    assert_eq!(key.verify(&token, presented.unwrap_or(client)).is_ok(), change == 0);
}
