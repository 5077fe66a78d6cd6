package main

import (
	"encoding/json"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

type svidOrder struct {
	// Leaf first, without the root.
	Chain       [][]byte `json:"chain"`
	Anchors     [][]byte `json:"anchors"`
	TrustDomain string   `json:"trustDomain"`
	Now         int64    `json:"now"`
}

type idFacts struct {
	ID          string `json:"id"`
	TrustDomain string `json:"trustDomain"`
	Path        string `json:"path"`
}

// verifySvid takes the chain for an X.509-SVID of the trust domain, as any SPIFFE workload would.
func verifySvid(raw json.RawMessage) (any, error) {
	var order svidOrder
	if err := json.Unmarshal(raw, &order); err != nil {
		return nil, err
	}
	domain, err := spiffeid.TrustDomainFromString(order.TrustDomain)
	if err != nil {
		return nil, err
	}
	var joined []byte
	for _, der := range order.Anchors {
		joined = append(joined, der...)
	}
	bundle, err := x509bundle.ParseRaw(domain, joined)
	if err != nil {
		return nil, err
	}
	id, _, err := x509svid.ParseAndVerify(order.Chain, bundle, x509svid.WithTime(time.Unix(order.Now, 0)))
	if err != nil {
		return nil, err
	}
	return idFacts{id.String(), id.TrustDomain().Name(), id.Path()}, nil
}

func readSpiffeID(raw json.RawMessage) (any, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	id, err := spiffeid.FromString(text)
	if err != nil {
		return nil, err
	}
	return idFacts{id.String(), id.TrustDomain().Name(), id.Path()}, nil
}
