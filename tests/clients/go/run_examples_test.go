package contract

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An example is an entry of tests/clients/examples.json.
type example struct {
	Method string   `json:"method"`
	Server string   `json:"server"`
	Prints []string `json:"prints"`
}

// TestExamples runs the examples of proto/docs, and compares their output with examples.json.
func TestExamples(t *testing.T) {
	var all []example
	if err := readJSON(filepath.Join(repository, "tests/clients/examples.json"), &all); err != nil {
		t.Fatal(err)
	}
	running, err := newServers()
	if err != nil {
		t.Fatal(err)
	}
	good := 0
	for _, example := range all {
		server := running.get(t, example.Server)
		found, err := printed(func() error { return example.run(server) })
		if err != nil || !slices.Equal(found, example.Prints) {
			t.Errorf("%s: expected %q, got %q, %v", example.Method, example.Prints, found, err)
		} else {
			good++
		}
	}
	fmt.Printf("examples: %d of %d\n", good, len(all))
}

func (e *example) run(server *server) error {
	run := examples[e.Method]
	if run == nil {
		return fmt.Errorf("no example of %s", e.Method)
	}
	address := server.address
	if strings.HasPrefix(e.Method, "ControlService.") {
		address = server.control
	}
	connection, err := connect(address)
	if err != nil {
		return err
	}
	defer connection.Close()
	return run(context.Background(), connection)
}

// printed returns the lines that a function writes to stdout.
func printed(run func() error) ([]string, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	before := os.Stdout
	os.Stdout = writer
	err = run()
	os.Stdout = before
	writer.Close()
	text, _ := io.ReadAll(reader)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), err
}
