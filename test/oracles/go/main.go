// Command judge lets Go's crypto/x509, go-spiffe, go-jose and zlint judge what this project issues, and make what it must read.
// It reads one JSON array of orders on standard input and writes one JSON array of answers, in order: judge <what>.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Each task answers one order; it never ends the run.
var tasks = map[string]func(json.RawMessage) (any, error){
	"verify":  verify,
	"make":    makeChain,
	"request": readRequest,
	"svid":    verifySvid,
	"id":      readSpiffeID,
	"token":   verifyToken,
	"sign":    signToken,
	"lint":    lintCertificate,
}

type failure struct {
	Error string `json:"error"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("name one task")
	}
	task, ok := tasks[os.Args[1]]
	if !ok {
		return fmt.Errorf("no task %q", os.Args[1])
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var orders []json.RawMessage
	if err := json.Unmarshal(input, &orders); err != nil {
		return err
	}
	answers := make([]any, len(orders))
	for i, order := range orders {
		answer, err := task(order)
		if err != nil {
			answer = failure{err.Error()}
		}
		answers[i] = answer
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}
