//! Signing with a private key that is at hand.

use rsa::pkcs1v15::SigningKey;
use rsa::sha2::Sha512;
use rsa::signature::{SignatureEncoding, Signer as _};
use rsa::{BigUint, RsaPrivateKey};
use ssh_key::private::{KeypairData, RsaKeypair};
use ssh_key::{Algorithm, Error, HashAlg, LineEnding, PrivateKey, Signature, SshSig};

use crate::format::NAMESPACE;

/// The hash that ssh-keygen takes.
const HASH: HashAlg = HashAlg::Sha512;

/// Whether a key of this kind signs from its file: not one that is in hardware, nor one of an unknown type.
pub(super) fn can_sign(key: &PrivateKey) -> bool {
    matches!(key.key_data(), KeypairData::Ed25519(_) | KeypairData::Ecdsa(_) | KeypairData::Rsa(_))
}

/// Signs as `ssh-keygen -Y sign -n fdl` does. Takes no chance: the same key and bytes give the same signature.
pub(super) fn sign(key: &PrivateKey, record: &[u8]) -> Result<Vec<u8>, Error> {
    let signature = match key.key_data() {
        KeypairData::Rsa(pair) => sign_rsa(pair, record)?,
        _ => key.sign(NAMESPACE, HASH, record)?,
    };
    Ok(signature.to_pem(LineEnding::LF)?.into_bytes())
}

/// By `rsa` itself: ssh-key 0.6.7 gives it the first prime twice, and it refuses such a key.
fn sign_rsa(pair: &RsaKeypair, record: &[u8]) -> Result<SshSig, Error> {
    let number = |number| BigUint::try_from(number);
    let primes = vec![number(&pair.private.p)?, number(&pair.private.q)?];
    let (modulus, exponent, private) = (number(&pair.public.n)?, number(&pair.public.e)?, number(&pair.private.d)?);
    let key = RsaPrivateKey::from_components(modulus, exponent, private, primes)?;
    let signed = SigningKey::<Sha512>::new(key).try_sign(&SshSig::signed_data(NAMESPACE, HASH, record)?)?;
    let signature = Signature::new(Algorithm::Rsa { hash: Some(HashAlg::Sha512) }, signed.to_vec())?;
    SshSig::new(pair.public.clone().into(), NAMESPACE, HASH, signature)
}
