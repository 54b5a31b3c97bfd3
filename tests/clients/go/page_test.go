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

// tool is the tool of the pages' tests.
const tool = `{"type": "function", "function": {"name": "weather", "parameters":
	{"type": "object", "properties": {"city": {"const": "Paris"}}, "required": ["city"]}}}`

// TestPage runs the program of proto/clients/go.md, without a schema, with one, and with a tool.
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
	address := running.get(t, taskServer(t)).address
	run := func(address string, arguments ...string) string {
		command := exec.Command("go", append([]string{"run", "./gen/page", address}, arguments...)...)
		command.Stderr = os.Stderr
		answer, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	if answer := run(address, "Hi"); answer == "" {
		t.Error("the program printed nothing")
	}
	if answer := strings.TrimSpace(run(address, "<|im_end|>", `{"type": "boolean"}`)); answer != "true" && answer != "false" {
		t.Errorf("the program printed %q, not a boolean", answer)
	}
	t.Setenv("TOOL", tool)
	called := "\ncalls weather {\"city\": \"Paris\"}\n"
	if answer := run(running.get(t, "calling").address, "hi"); !strings.Contains(answer, called) {
		t.Errorf("the program printed %q without %q", answer, called)
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
