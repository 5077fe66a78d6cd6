package main

import (
	"crypto/x509"
	"encoding/json"
	"time"
)

type verifyOrder struct {
	Leaf          []byte   `json:"leaf"`
	Intermediates [][]byte `json:"intermediates"`
	Anchors       [][]byte `json:"anchors"`
	// client, server; empty: no particular one
	Purposes   []string `json:"uses"`
	ServerName string   `json:"serverName"`
	// Unix seconds
	Now int64 `json:"now"`
}

type accepted struct {
	Serial string   `json:"serial"`
	Names  []string `json:"names"`
}

var usages = map[string]x509.ExtKeyUsage{"client": x509.ExtKeyUsageClientAuth, "server": x509.ExtKeyUsageServerAuth}

func poolOf(certificates [][]byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for _, der := range certificates {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		pool.AddCert(certificate)
	}
	return pool, nil
}

func verify(raw json.RawMessage) (any, error) {
	var order verifyOrder
	if err := json.Unmarshal(raw, &order); err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(order.Leaf)
	if err != nil {
		return nil, err
	}
	roots, err := poolOf(order.Anchors)
	if err != nil {
		return nil, err
	}
	intermediates, err := poolOf(order.Intermediates)
	if err != nil {
		return nil, err
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: intermediates, DNSName: order.ServerName, CurrentTime: time.Unix(order.Now, 0)}
	wanted := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	if len(order.Purposes) > 0 {
		wanted = nil
		for _, purpose := range order.Purposes {
			wanted = append(wanted, usages[purpose])
		}
	}
	// Verify asks whether any of the usages fits; here each must.
	for _, usage := range wanted {
		options.KeyUsages = []x509.ExtKeyUsage{usage}
		if _, err := leaf.Verify(options); err != nil {
			return nil, err
		}
	}
	names := append([]string{}, leaf.DNSNames...)
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return accepted{leaf.SerialNumber.Text(16), names}, nil
}

type requestOrder struct {
	Request []byte `json:"request"`
}

type requestFacts struct {
	Spki []byte `json:"spki"`
}

func readRequest(raw json.RawMessage) (any, error) {
	var order requestOrder
	if err := json.Unmarshal(raw, &order); err != nil {
		return nil, err
	}
	request, err := x509.ParseCertificateRequest(order.Request)
	if err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, err
	}
	return requestFacts{request.RawSubjectPublicKeyInfo}, nil
}
