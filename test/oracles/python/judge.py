"""python cryptography judges what this project issues, and makes what it must read: judge.py <task>, JSON in, JSON out."""

import base64
import datetime
import ipaddress
import json
import sys

import cryptography
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

try:
    from cryptography.x509.verification import DNSName, PolicyBuilder, Store

    HAS_VERIFIER = hasattr(PolicyBuilder, "build_client_verifier")
except ImportError:
    HAS_VERIFIER = False

ATTRIBUTES = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME}
EKUS = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}
HASHES = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384()}


def der(text):
    return base64.b64decode(text)


def certificate(text):
    return x509.load_der_x509_certificate(der(text))


def at(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).replace(tzinfo=None)


def verify(order):
    leaf = certificate(order["leaf"])
    intermediates = [certificate(text) for text in order["intermediates"]]
    anchor = certificate(order["anchors"][0])
    path = [leaf, *intermediates, anchor]
    # Signatures, names and times by hand, for what the verifier of TLS chains has no rule for: authorities and signers of commands.
    for issued, issuer in zip(path, path[1:]):
        assert_issued(issued, issuer)
        if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            raise ValueError("an issuer is no authority")
    now = at(order["now"])
    for one in path:
        if not not_before(one) <= now <= not_after(one):
            raise ValueError("not in force")
    if not HAS_VERIFIER:
        return by_hand(order, leaf)
    builder = PolicyBuilder().store(Store([anchor])).time(now)
    for use in order["uses"]:
        if use == "client":
            builder.build_client_verifier().verify(leaf, intermediates)
        else:
            builder.build_server_verifier(DNSName(order["serverName"] or "gw.fleet.example")).verify(leaf, intermediates)
    return {}


def assert_issued(issued, issuer):
    if hasattr(issued, "verify_directly_issued_by"):
        return issued.verify_directly_issued_by(issuer)
    if issued.issuer != issuer.subject:
        raise ValueError("another issuer")
    issuer.public_key().verify(issued.signature, issued.tbs_certificate_bytes, ec.ECDSA(issued.signature_hash_algorithm))


def by_hand(order, leaf):
    """Releases before 42 have no verifier: uses and names are read only."""
    for use in order["uses"]:
        if EKUS[use] not in leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value:
            raise ValueError("not for this use")
    if order["serverName"]:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
        if order["serverName"] not in names:
            raise ValueError("not this name")
    return {}


def not_before(one):
    return one.not_valid_before_utc.replace(tzinfo=None) if hasattr(one, "not_valid_before_utc") else one.not_valid_before


def not_after(one):
    return one.not_valid_after_utc.replace(tzinfo=None) if hasattr(one, "not_valid_after_utc") else one.not_valid_after


def request(order):
    read = x509.load_der_x509_csr(der(order["request"]))
    if not read.is_signature_valid:
        raise ValueError("not signed by its key")
    return {}


def new_key(kind):
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1() if kind == "p256" else ec.SECP384R1())


def usage(names):
    return x509.KeyUsage(
        digital_signature="digitalSignature" in names,
        key_cert_sign="keyCertSign" in names,
        crl_sign="cRLSign" in names,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def issuer_identifier(kind, issuer, issuer_key):
    if kind == "none":
        return []
    plain = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    if kind == "key" or issuer is None:
        return [(plain, False)]
    name = [x509.DirectoryName(issuer.issuer)]
    return [(x509.AuthorityKeyIdentifier(plain.key_identifier, name, issuer.serial_number), False)]


def extensions_of(shape, key):
    names = [
        *[x509.UniformResourceIdentifier(text) for text in shape["uris"]],
        *[x509.DNSName(text) for text in shape["dns"]],
        *[x509.IPAddress(ipaddress.ip_address(text)) for text in shape["ips"]],
        *[x509.RFC822Name(text) for text in shape["emails"]],
    ]
    found = [(usage(shape["keyUsage"]), True)]
    if shape["isCa"]:
        found.append((x509.BasicConstraints(ca=True, path_length=shape["pathLen"]), True))
        found.append((x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False))
    if shape["ekus"]:
        found.append((x509.ExtendedKeyUsage([EKUS[use] for use in shape["ekus"]]), False))
    if names:
        found.append((x509.SubjectAlternativeName(names), False))
    if shape["onlyDns"]:
        found.append((x509.NameConstraints([x509.DNSName(text) for text in shape["onlyDns"]], None), True))
    if shape["hasUnknown"]:
        found.append((x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00"), True))
    return found


def make(shapes):
    """Root first, each issued by the one before it; and a request by the last one's key."""
    chain, issuer, issuer_key = [], None, None
    for shape in shapes:
        key = new_key(shape["key"])
        issuer_key = issuer_key or key
        subject = x509.Name([x509.NameAttribute(ATTRIBUTES[kind], text) for kind, text in shape["subject"]])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(at(shape["notBefore"]))
            .not_valid_after(at(shape["notAfter"]))
        )
        for value, critical in [*extensions_of(shape, key), *issuer_identifier(shape["aki"], issuer, issuer_key)]:
            builder = builder.add_extension(value, critical)
        issuer = builder.sign(issuer_key, HASHES[shape["hash"]])
        issuer_key = key
        chain.append(base64.b64encode(issuer.public_bytes(serialization.Encoding.DER)).decode())
    asked = x509.CertificateSigningRequestBuilder().subject_name(issuer.subject).sign(issuer_key, hashes.SHA256())
    return {"chain": chain, "request": base64.b64encode(asked.public_bytes(serialization.Encoding.DER)).decode()}


def facts(_):
    return {"version": cryptography.__version__, "hasVerifier": HAS_VERIFIER}


TASKS = {"verify": verify, "request": request, "make": make, "facts": facts}


def answer(task, order):
    try:
        return task(order)
    except Exception as error:  # a refusal is an answer
        return {"error": f"{type(error).__name__}: {error}"}


json.dump([answer(TASKS[sys.argv[1]], order) for order in json.load(sys.stdin)], sys.stdout)
