"""Certificates of one's own, for servers of 127.0.0.1."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def certificates(folder):
    """An authority, and a certificate and key for 127.0.0.1 that it has signed, as files."""
    def signed(name, key, by, *extensions):
        now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
        subject, issuer = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in (name, "authority"))
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - day, now + day)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    files = folder / "ca.pem", folder / "host.pem", folder / "host.key"
    files[0].write_bytes(signed("authority", authority, authority, x509.BasicConstraints(ca=True, path_length=None)))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    files[1].write_bytes(signed("host", key, authority, address, x509.BasicConstraints(ca=False, path_length=None)))
    files[2].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return files
