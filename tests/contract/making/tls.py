"""An authority, and the certificate of a server on this machine. Keys and dates are constants."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START, END = datetime.datetime(2026, 1, 1), datetime.datetime(2126, 1, 1)


def make(folder: Path) -> None:
    """Writes authority.pem, server.pem and server.key."""
    folder.mkdir(exist_ok=True)
    authority, server = (ec.derive_private_key(number, ec.SECP256R1()) for number in (1001, 1002))
    name = named("vectors")
    ca = x509.BasicConstraints(ca=True, path_length=None)
    write(folder / "authority.pem", signed(name, authority, name, authority, 1, ca))
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    names = x509.SubjectAlternativeName(hosts)
    write(folder / "server.pem", signed(named("server"), server, name, authority, 2, names))
    key = server.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.key").write_bytes(key)


def named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def signed(subject, key, issuer, issuer_key, serial, extension) -> x509.Certificate:
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial, START, END)
    builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(issuer_key, hashes.SHA256(), ecdsa_deterministic=True)


def write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
