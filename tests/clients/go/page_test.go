package contract

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var program = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestPage runs the program of proto/clients/go.md.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository, "proto/clients/go.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := program.FindSubmatch(page)
	if found == nil {
		t.Fatal("go.md has no program")
	}
	source := strings.ReplaceAll(string(found[1]), "example.com/app/gen", "example.com/tandem/contract/gen")
	if err := write("gen/page/main.go", source); err != nil {
		t.Fatal(err)
	}
	running, err := newServers()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "run", "./gen/page", running.get(t, taskServer(t)).address, "Hi")
	command.Stderr = os.Stderr
	if answer, err := command.Output(); err != nil || len(answer) == 0 {
		t.Errorf("the program printed %q: %v", answer, err)
	}
}

// taskServer returns the key of a server that answers tasks without credentials.
func taskServer(t *testing.T) string {
	all, err := readVectors()
	if err != nil {
		t.Fatal(err)
	}
	for _, vector := range all {
		isTask := vector.Method == "tandem.task.v1.TaskService/RunTask"
		if isTask && vector.Metadata == nil && vector.Expect.Error == nil && vector.CancelAfter == 0 {
			return vector.Server
		}
	}
	t.Fatal("no vector expects an answer to a task")
	return ""
}
