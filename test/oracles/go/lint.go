package main

import (
	"encoding/json"

	"github.com/zmap/zcrypto/x509"
	"github.com/zmap/zlint/v3"
	"github.com/zmap/zlint/v3/lint"
)

type lintOrder struct {
	Certificate []byte `json:"certificate"`
}

type finding struct {
	Lint   string `json:"lint"`
	Status string `json:"status"`
	Source string `json:"source"`
}

// lintCertificate answers every notice, warning and error of every lint.
func lintCertificate(raw json.RawMessage) (any, error) {
	var order lintOrder
	if err := json.Unmarshal(raw, &order); err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(order.Certificate)
	if err != nil {
		return nil, err
	}
	findings := []finding{}
	for name, result := range zlint.LintCertificate(certificate).Results {
		if result.Status < lint.Notice {
			continue
		}
		source := ""
		if found := lint.GlobalRegistry().CertificateLints().ByName(name); found != nil {
			source = string(found.Source)
		}
		findings = append(findings, finding{name, result.Status.String(), source})
	}
	return findings, nil
}
