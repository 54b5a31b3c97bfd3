package contract

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // for Any in JSON
	_ "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const repository = "../../.."

// A request is a call and its parameters.
type request struct {
	Method        string            `json:"method"`
	Metadata      map[string]string `json:"metadata"`
	DeadlineMs    int               `json:"deadline_ms"`
	Request       json.RawMessage   `json:"request"`
	RequestBinary *string           `json:"request_binary"` // unset if the JSON has a part in short
	BinaryOnly    bool              `json:"binary_only"`
	Compression   string            `json:"compression"`
}

// An expectation is the expected answer: a message, or the events of a stream, or an error, or events and an error.
type expectation struct {
	Response map[string]any    `json:"response"`
	Events   []any             `json:"events"`
	Error    map[string]any    `json:"error"`
	Headers  map[string]string `json:"headers"`
	Absent   []string          `json:"absent"`
}

type vector struct {
	request
	Name        string      `json:"name"`
	Server      string      `json:"server"`
	CancelAfter int         `json:"cancel_after"`
	SignalAfter *int        `json:"signal_after"` // let the server drain after this number of events; 0: before the message
	Eventually  bool        `json:"eventually"`   // repeat the call until its answer is the expected one
	Expect      expectation `json:"expect"`
}

// folderOf returns the folder that a variable names, or else a folder of the repository.
func folderOf(variable, otherwise string) string {
	folder := os.Getenv(variable)
	if folder == "" {
		folder = filepath.Join(repository, otherwise)
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		panic(err)
	}
	return folder
}

func contractFolder() string { return folderOf("TANDEM_CONTRACT", "tests/contract") }

func readVectors() ([]*vector, error) {
	files, err := filepath.Glob(filepath.Join(contractFolder(), "vectors", "*.json")) // in lexical order
	if err != nil {
		return nil, err
	}
	var all []*vector
	for _, file := range files {
		var some []*vector
		if err := readJSON(file, &some); err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no vectors in %s", contractFolder())
	}
	return all, nil
}

func readJSON(file string, value any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if text, err = json.Marshal(expanded(content)); err != nil {
		return err
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// expanded returns JSON with the text or list that each {"before", "repeat", "count", "after"} means.
func expanded(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = expanded(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = expanded(value[key])
		}
		if number, ok := value["count"].(json.Number); ok {
			return repeated(value, number)
		}
	}
	return value
}

func repeated(value map[string]any, number json.Number) any {
	count, _ := strconv.Atoi(number.String())
	switch part := value["repeat"].(type) {
	case string:
		before, _ := value["before"].(string)
		after, _ := value["after"].(string)
		return before + strings.Repeat(part, count) + after
	case []any:
		before, _ := value["before"].([]any)
		after, _ := value["after"].([]any)
		return slices.Concat(before, slices.Repeat(part, count), after)
	}
	return value
}

// split returns the service and the name of a method, such as `tandem.task.v1.TaskService/RunTask`.
func (r *request) split() (service, name string) {
	service, name, _ = strings.Cut(r.Method, "/")
	return service, name
}

func (r *request) method() (protoreflect.MethodDescriptor, error) {
	service, name := r.split()
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Method, err)
	}
	method := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	if method == nil {
		return nil, fmt.Errorf("no method %s", r.Method)
	}
	return method, nil
}

// empty returns a new request message.
func (r *request) empty() (proto.Message, error) {
	method, err := r.method()
	if err != nil {
		return nil, err
	}
	found, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		return nil, err
	}
	return found.New().Interface(), nil
}

// answer returns a new response message.
func (r *request) answer() (proto.Message, error) {
	method, err := r.method()
	if err != nil {
		return nil, err
	}
	found, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return nil, err
	}
	return found.New().Interface(), nil
}

// message returns the message of the request's JSON, or of its bytes if only these have it.
func (r *request) message() (proto.Message, error) {
	if r.BinaryOnly {
		return r.own()
	}
	message, err := r.empty()
	if err != nil || len(r.Request) == 0 {
		return message, err
	}
	return message, protojson.Unmarshal(r.Request, message)
}

// own returns the message of the request's bytes, or of its JSON if it has no bytes.
func (r *request) own() (proto.Message, error) {
	if r.RequestBinary == nil {
		return r.message()
	}
	return r.decoded(*r.RequestBinary)
}

// decoded returns the message of other bytes, in base64.
func (r *request) decoded(text string) (proto.Message, error) {
	message, err := r.empty()
	if err != nil {
		return nil, err
	}
	bytes, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return message, proto.Unmarshal(bytes, message)
}
