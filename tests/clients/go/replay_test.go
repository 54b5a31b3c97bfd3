// Package contract replays the contract's vectors with generated code and grpc-go.
//
// TestReplay starts the services and compares every answer with its vector. TestRead calls nothing: it reads
// the requests that the suites of all languages wrote into TANDEM_EXCHANGE. The environment variables are
// those of the Python suite.
package contract

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // registers the compressor
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	generatev1 "example.com/tandem/contract/gen/tandem/generate/v1"
	renderv1 "example.com/tandem/contract/gen/tandem/render/v1"
	taskv1 "example.com/tandem/contract/gen/tandem/task/v1"
)

const eventuallyTime = 10 * time.Second

// clients has the generated constructor of each service's client.
var clients = map[string]any{
	"grpc.health.v1.Health":              healthv1.NewHealthClient,
	"tandem.generate.v1.ControlService":  generatev1.NewControlServiceClient,
	"tandem.generate.v1.GenerateService": generatev1.NewGenerateServiceClient,
	"tandem.render.v1.RegistryService":   renderv1.NewRegistryServiceClient,
	"tandem.render.v1.RenderService":     renderv1.NewRenderServiceClient,
	"tandem.task.v1.TaskService":         taskv1.NewTaskServiceClient,
}

func TestReplay(t *testing.T) {
	all, err := readVectors()
	if err != nil {
		t.Fatal(err)
	}
	if folder := os.Getenv("TANDEM_EXCHANGE"); folder != "" {
		writeRequests(t, filepath.Join(folder, "go.txt"), all)
	}
	all = chosen(all)
	running, err := newServers()
	if err != nil {
		t.Fatal(err)
	}
	good := 0
	for key, some := range byServer(all) {
		server := running.get(t, key)
		end := hold(t, server)
		for _, vector := range some {
			lines := vector.differences(server)
			for _, line := range lines {
				t.Errorf("%s: %s", vector.Name, line)
			}
			if len(lines) == 0 {
				good++
			}
		}
		end()
		running.release(key)
	}
	fmt.Printf("vectors: %d of %d\n", good, len(all))
}

// chosen returns the vectors of the servers in TANDEM_SERVERS, or all.
func chosen(all []*vector) []*vector {
	keys, isSet := os.LookupEnv("TANDEM_SERVERS")
	return slices.DeleteFunc(all, func(v *vector) bool {
		return isSet && !slices.Contains(strings.Split(keys, ","), v.Server)
	})
}

// byServer yields the vectors of each server, the servers in the order of their first vectors.
func byServer(all []*vector) func(yield func(string, []*vector) bool) {
	var keys []string
	groups := map[string][]*vector{}
	for _, vector := range all {
		if groups[vector.Server] == nil {
			keys = append(keys, vector.Server)
		}
		groups[vector.Server] = append(groups[vector.Server], vector)
	}
	return func(yield func(string, []*vector) bool) {
		for _, key := range keys {
			if !yield(key, groups[key]) {
				return
			}
		}
	}
}

// hold opens the calls that a server is busy with during its vectors, and sends the server's signal. It
// returns a function that ends the calls.
func hold(t *testing.T, server *server) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	isOther := func(kind string) bool { return kind != "progress" }
	isProgress := func(kind string) bool { return kind == "progress" }
	if err := openUntil(ctx, server, server.spec.Hold, isOther); err != nil {
		t.Fatal(err)
	}
	if err := openUntil(ctx, server, server.spec.Queued, isProgress); err != nil {
		t.Fatal(err)
	}
	if server.spec.Signal != "" {
		if err := server.terminate(); err != nil {
			t.Fatal(err)
		}
	}
	return cancel
}

// openUntil opens a call, if the server has one, and reads its events until the first one of a wanted kind.
func openUntil(ctx context.Context, server *server, request *request, isWanted func(kind string) bool) error {
	if request == nil {
		return nil
	}
	receive, err := open(ctx, server, request, &answer{})
	for err == nil {
		var event object
		event, err = receive()
		for kind := range event {
			if isWanted(kind) {
				return nil
			}
		}
	}
	return err
}

// differences returns a line for each difference between the vector and the answer to it.
func (v *vector) differences(server *server) []string {
	own, err := v.message()
	if err != nil {
		return []string{err.Error()}
	}
	sent, err := v.own()
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	if !v.BinaryOnly && !proto.Equal(own, sent) {
		lines = append(lines, "request_binary: differs from request")
	}
	for end := time.Now().Add(eventuallyTime); ; {
		answer := v.call(server)
		found := append(v.compareStatus(answer), v.compareContent(answer)...)
		if len(found) == 0 || !v.Eventually || time.Now().After(end) {
			return append(lines, found...)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// An answer is the result of a call: its messages as proto3 JSON, and its status.
type answer struct {
	messages         []object
	err              error
	headers, trailer metadata.MD
}

func (v *vector) call(server *server) *answer {
	result := &answer{}
	limit := time.Minute
	if v.DeadlineMs > 0 {
		limit = time.Duration(v.DeadlineMs) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	receive, err := v.open(ctx, server, result)
	count := 0
	for err == nil {
		var message object
		if message, err = receive(); err != nil || ctx.Err() != nil {
			continue
		}
		result.messages = append(result.messages, message)
		if _, isProgress := message["progress"]; isProgress && !v.keepsProgress() {
			continue
		}
		if count++; count == v.CancelAfter {
			cancel()
		}
		if v.SignalAfter != nil && count == *v.SignalAfter {
			err = server.terminate()
		}
	}
	if !errors.Is(err, io.EOF) {
		result.err = err
	}
	return result
}

// open opens the vector's call, or its late call.
func (v *vector) open(ctx context.Context, server *server, result *answer) (func() (object, error), error) {
	if v.SignalAfter != nil && *v.SignalAfter == 0 {
		return openLate(ctx, server, &v.request, result)
	}
	return open(ctx, server, &v.request, result)
}

// openLate opens a call, lets the server drain, and then sends the call's message.
func openLate(ctx context.Context, server *server, r *request, result *answer) (func() (object, error), error) {
	message, err := r.message()
	if err != nil {
		return nil, err
	}
	streams := grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := server.connection.NewStream(ctx, &streams, "/"+r.Method)
	if err != nil {
		return nil, err
	}
	server.isServing() // on the same connection, so that the server has the call before its answer
	if err := server.terminate(); err != nil {
		return nil, err
	}
	if err := stream.SendMsg(message); err != nil {
		return nil, err
	}
	return func() (object, error) {
		answer, err := r.answer()
		if err != nil {
			return nil, err
		}
		if err := stream.RecvMsg(answer); err != nil {
			result.headers, _ = stream.Header()
			result.trailer = stream.Trailer()
			return nil, err
		}
		return asJSON(answer)
	}, stream.CloseSend()
}

// open calls the method of a generated client. It returns a function that receives the next message, or
// io.EOF after the last one.
func open(ctx context.Context, server *server, r *request, result *answer) (func() (object, error), error) {
	method, err := r.method()
	if err != nil {
		return nil, err
	}
	message, err := r.message()
	if err != nil {
		return nil, err
	}
	service, name := r.split()
	connection := server.connection
	if service == "tandem.generate.v1.ControlService" {
		connection = server.controlled
	}
	client := reflect.ValueOf(clients[service]).Call([]reflect.Value{reflect.ValueOf(connection)})[0]
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(r.Metadata))
	arguments := []any{ctx, message, grpc.Header(&result.headers), grpc.Trailer(&result.trailer)}
	if r.Compression != "" {
		arguments = append(arguments, grpc.UseCompressor(r.Compression))
	}
	values := make([]reflect.Value, len(arguments))
	for i, argument := range arguments {
		values[i] = reflect.ValueOf(argument)
	}
	results := client.Elem().MethodByName(name).Call(values)
	if err, ok := results[1].Interface().(error); ok {
		return nil, err
	}
	if method.IsStreamingServer() {
		return receiver(results[0].Elem().MethodByName("Recv"), results[0].Interface().(grpc.ClientStream), result), nil
	}
	return once(results[0].Interface().(proto.Message)), nil
}

func receiver(receive reflect.Value, stream grpc.ClientStream, result *answer) func() (object, error) {
	return func() (object, error) {
		results := receive.Call(nil)
		if err, ok := results[1].Interface().(error); ok {
			result.headers, _ = stream.Header()
			result.trailer = stream.Trailer()
			return nil, err
		}
		return asJSON(results[0].Interface().(proto.Message))
	}
}

func once(message proto.Message) func() (object, error) {
	return func() (object, error) {
		if message == nil {
			return nil, io.EOF
		}
		defer func() { message = nil }()
		return asJSON(message)
	}
}

func asJSON(message proto.Message) (object, error) {
	encoded, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	var result object
	return result, json.Unmarshal(encoded, &result)
}

func (v *vector) compareStatus(answer *answer) []string {
	var lines []string
	all := metadata.Join(answer.headers, answer.trailer)
	for name, value := range v.Expect.Headers {
		got := all.Get(name)
		if len(got) == 0 || value != "*" && got[0] != value {
			lines = append(lines, fmt.Sprintf("headers.%s: expected %q, got %q", name, value, got))
		}
	}
	wanted := v.Expect.Error
	if v.CancelAfter > 0 {
		wanted = object{"code": "CANCELLED"}
	}
	if wanted != nil && answer.err != nil {
		return append(lines, differences(wanted, failure(answer.err), "error")...)
	}
	if wanted != nil || answer.err != nil {
		lines = append(lines, fmt.Sprintf("status: expected %s, got %v", text(wanted), answer.err))
	}
	return lines
}

// failure returns an error as vectors write it.
func failure(err error) object {
	state := status.Convert(err)
	result := object{"code": code.Code_name[int32(state.Code())], "message": state.Message(), "reason": ""}
	for _, detail := range state.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			result["reason"] = detail.Reason
			values := object{}
			for name, value := range detail.Metadata {
				values[name] = value
			}
			result["metadata"] = values
		case *errdetails.BadRequest:
			result["field"] = detail.FieldViolations[0].Field
		case *errdetails.RetryInfo:
			result["retry"] = detail.RetryDelay.AsDuration() > 0
		case *errdetails.ResourceInfo:
			result["resource"] = object{"type": detail.ResourceType, "name": detail.ResourceName}
		}
	}
	return result
}

// keepsProgress returns true if the vector expects progress events. Otherwise they are skipped.
func (v *vector) keepsProgress() bool {
	return slices.ContainsFunc(v.Expect.Events, func(event any) bool {
		_, isProgress := event.(object)["progress"]
		return isProgress
	})
}

func (v *vector) compareContent(answer *answer) []string {
	var expected, result object
	switch {
	case v.Expect.Response != nil:
		expected = v.Expect.Response
		if len(answer.messages) > 0 {
			result = answer.messages[0]
		}
	case v.Expect.Events != nil:
		expected = object{"events": v.Expect.Events}
		result = object{"events": joined(answer.messages, v.keepsProgress())}
	}
	return append(differences(expected, result, ""), present(v.Expect.Absent, result)...)
}

// writeRequests writes the bytes of every request.
func writeRequests(t *testing.T, file string, all []*vector) {
	var lines strings.Builder
	for _, vector := range all {
		message, err := vector.message()
		if err != nil {
			t.Fatalf("%s: %v", vector.Name, err)
		}
		bytes, err := proto.Marshal(message)
		if err != nil {
			t.Fatalf("%s: %v", vector.Name, err)
		}
		fmt.Fprintf(&lines, "%s\t%s\n", vector.Name, base64.StdEncoding.EncodeToString(bytes))
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRead compares the requests that each language wrote with the vectors' own.
func TestRead(t *testing.T) {
	folder := os.Getenv("TANDEM_EXCHANGE")
	if folder == "" {
		t.Skip("TANDEM_EXCHANGE is unset")
	}
	all, err := readVectors()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no requests in %s", folder)
	}
	for _, file := range files {
		sent, good := readRequests(t, file), 0
		for _, vector := range all {
			own, err := vector.own()
			other, otherErr := vector.decoded(sent[vector.Name])
			if err != nil || otherErr != nil || !proto.Equal(own, other) {
				t.Errorf("%s: differs in %s", vector.Name, filepath.Base(file))
			} else {
				good++
			}
		}
		fmt.Printf("requests of %s: %d of %d\n", strings.TrimSuffix(filepath.Base(file), ".txt"), good, len(all))
	}
}

func readRequests(t *testing.T, file string) map[string]string {
	opened, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	sent := map[string]string{}
	lines := bufio.NewReader(opened)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return sent
		}
		if err != nil {
			t.Fatal(err)
		}
		name, data, _ := strings.Cut(strings.TrimSpace(line), "\t")
		sent[name] = data
	}
}
