package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

type tokenOrder struct {
	Jwks     jose.JSONWebKeySet `json:"jwks"`
	Token    string             `json:"token"`
	Issuer   string             `json:"issuer"`
	Audience string             `json:"audience"`
	Now      int64              `json:"now"`
}

// verifyToken verifies a token with the key of a published set that its header names, and its claims.
func verifyToken(raw json.RawMessage) (any, error) {
	var order tokenOrder
	if err := json.Unmarshal(raw, &order); err != nil {
		return nil, err
	}
	token, err := jwt.ParseSigned(order.Token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, err
	}
	keys := order.Jwks.Key(token.Headers[0].KeyID)
	if len(keys) != 1 {
		return nil, fmt.Errorf("%d keys are named %q", len(keys), token.Headers[0].KeyID)
	}
	var claims jwt.Claims
	all := map[string]any{}
	if err := token.Claims(keys[0].Key, &claims, &all); err != nil {
		return nil, err
	}
	expected := jwt.Expected{Issuer: order.Issuer, AnyAudience: jwt.Audience{order.Audience}, Time: time.Unix(order.Now, 0)}
	return all, claims.ValidateWithLeeway(expected, 0)
}

type signOrder struct {
	Algorithm string `json:"algorithm"`
	Typ       string `json:"typ"`
	Kid       string `json:"kid"`
	// Further members of the header.
	Extra  map[string]any `json:"extra"`
	Claims map[string]any `json:"claims"`
}

type signedToken struct {
	Token string `json:"token"`
	Spki  []byte `json:"spki"`
}

// signToken signs claims with a new key.
func signToken(raw json.RawMessage) (any, error) {
	var order signOrder
	if err := json.Unmarshal(raw, &order); err != nil {
		return nil, err
	}
	curve := elliptic.P256()
	if order.Algorithm == "ES384" {
		curve = elliptic.P384()
	}
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		return nil, err
	}
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(order.Typ)).WithHeader("kid", order.Kid)
	for name, value := range order.Extra {
		options = options.WithHeader(jose.HeaderKey(name), value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(order.Algorithm), Key: key}, options)
	if err != nil {
		return nil, err
	}
	token, err := jwt.Signed(signer).Claims(order.Claims).Serialize()
	if err != nil {
		return nil, err
	}
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	return signedToken{token, spki}, err
}
