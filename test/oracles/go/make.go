package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
)

// shape is the description of a certificate that every maker of the tests reads (test/oracles/shapes.ts).
type shape struct {
	Key        string      `json:"key"`
	Hash       string      `json:"hash"`
	Subject    [][2]string `json:"subject"`
	IsCa       bool        `json:"isCa"`
	PathLen    *int        `json:"pathLen"`
	KeyUsage   []string    `json:"keyUsage"`
	Ekus       []string    `json:"ekus"`
	Uris       []string    `json:"uris"`
	Dns        []string    `json:"dns"`
	Ips        []string    `json:"ips"`
	Emails     []string    `json:"emails"`
	OnlyDns    []string    `json:"onlyDns"`
	HasUnknown bool        `json:"hasUnknown"`
	NotBefore  int64       `json:"notBefore"`
	NotAfter   int64       `json:"notAfter"`
}

type made struct {
	// Root first.
	Chain   [][]byte `json:"chain"`
	Request []byte   `json:"request"`
}

var attributes = map[string]asn1.ObjectIdentifier{"CN": {2, 5, 4, 3}, "O": {2, 5, 4, 10}, "OU": {2, 5, 4, 11}}
var keyUsages = map[string]x509.KeyUsage{
	"digitalSignature": x509.KeyUsageDigitalSignature,
	"keyCertSign":      x509.KeyUsageCertSign,
	"cRLSign":          x509.KeyUsageCRLSign,
}
var algorithms = map[string]x509.SignatureAlgorithm{
	"p256 sha256": x509.ECDSAWithSHA256, "p256 sha384": x509.ECDSAWithSHA384, "p384 sha256": x509.ECDSAWithSHA256,
	"p384 sha384": x509.ECDSAWithSHA384, "rsa sha256": x509.SHA256WithRSA,
}

func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "p256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "p384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "rsa":
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return nil, fmt.Errorf("no key %q", kind)
}

func templateOf(s shape) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), NotBefore: time.Unix(s.NotBefore, 0), NotAfter: time.Unix(s.NotAfter, 0),
		BasicConstraintsValid: s.IsCa, IsCA: s.IsCa, DNSNames: s.Dns, EmailAddresses: s.Emails, PermittedDNSDomains: s.OnlyDns,
	}
	for _, pair := range s.Subject {
		template.Subject.ExtraNames = append(template.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: attributes[pair[0]], Value: pair[1]})
	}
	if s.PathLen != nil {
		template.MaxPathLen, template.MaxPathLenZero = *s.PathLen, *s.PathLen == 0
	}
	for _, usage := range s.KeyUsage {
		template.KeyUsage |= keyUsages[usage]
	}
	for _, eku := range s.Ekus {
		template.ExtKeyUsage = append(template.ExtKeyUsage, usages[eku])
	}
	for _, text := range s.Uris {
		uri, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		template.URIs = append(template.URIs, uri)
	}
	for _, text := range s.Ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(text))
	}
	if s.HasUnknown {
		template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}, Critical: true, Value: []byte{5, 0}}}
	}
	return template, nil
}

// makeChain makes certificates root first, each issued by the one before it, and a request by the last one's key.
func makeChain(raw json.RawMessage) (any, error) {
	var shapes []shape
	if err := json.Unmarshal(raw, &shapes); err != nil {
		return nil, err
	}
	var answer made
	var issuer *x509.Certificate
	var issuerKey crypto.Signer
	issuerKind := ""
	for _, s := range shapes {
		key, err := newKey(s.Key)
		if err != nil {
			return nil, err
		}
		template, err := templateOf(s)
		if err != nil {
			return nil, err
		}
		if issuer == nil {
			issuer, issuerKey, issuerKind = template, key, s.Key
		}
		template.SignatureAlgorithm = algorithms[issuerKind+" "+s.Hash]
		der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
		if err != nil {
			return nil, err
		}
		answer.Chain = append(answer.Chain, der)
		if issuer, err = x509.ParseCertificate(der); err != nil {
			return nil, err
		}
		issuerKey, issuerKind = key, s.Key
	}
	request := &x509.CertificateRequest{Subject: issuer.Subject, URIs: issuer.URIs}
	der, err := x509.CreateCertificateRequest(rand.Reader, request, issuerKey)
	answer.Request = der
	return answer, err
}
