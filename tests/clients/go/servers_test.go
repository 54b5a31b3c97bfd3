package contract

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

const startTime = 2 * time.Minute

// A spec is an entry of servers.json.
type spec struct {
	Service     string            `json:"service"`
	Args        []string          `json:"args"`
	Replicas    []string          `json:"replicas"`
	Environment map[string]string `json:"environment"`
	Files       map[string]any    `json:"files"`
	Ready       *bool             `json:"ready"`
	TLS         string            `json:"tls"`
	Hold        *request          `json:"hold"`
	Queued      *request          `json:"queued"`
	Signal      string            `json:"signal"`
}

// A server is one process, and the connections to its ports.
type server struct {
	spec             *spec
	folder           string
	address, control string
	process          *exec.Cmd
	ended            chan struct{}
	connection       *grpc.ClientConn
	controlled       *grpc.ClientConn
}

// servers has the running servers.
type servers struct {
	specs   map[string]*spec
	running map[string]*server
}

func newServers() (*servers, error) {
	all := &servers{running: map[string]*server{}}
	return all, readJSON(filepath.Join(contractFolder(), "servers.json"), &all.specs)
}

// get starts a server unless it runs. It is stopped when the test ends.
func (s *servers) get(t *testing.T, key string) *server {
	if running := s.running[key]; running != nil {
		return running
	}
	spec := s.specs[key]
	if spec == nil {
		t.Fatalf("servers.json has no %s", key)
	}
	var generate string
	for _, replica := range spec.Replicas {
		address := s.get(t, replica).address
		if generate == "" {
			generate = "http://" + address
		}
	}
	started, err := start(spec, t.TempDir(), generate)
	if started != nil {
		t.Cleanup(started.stop)
	}
	if err != nil {
		t.Fatalf("server %s: %v", key, err)
	}
	s.running[key] = started
	return started
}

// release stops a server, unless others use it.
func (s *servers) release(key string) {
	for _, spec := range s.specs {
		for _, replica := range spec.Replicas {
			if replica == key {
				return
			}
		}
	}
	s.running[key].stop()
	delete(s.running, key)
}

func start(spec *spec, folder, generate string) (*server, error) {
	s := &server{spec: spec, folder: folder, address: freeAddress(), control: freeAddress(), ended: make(chan struct{})}
	for _, name := range slices.Sorted(maps.Keys(spec.Files)) { // a folder comes before its files
		if err := write(filepath.Join(folder, name), spec.Files[name]); err != nil {
			return nil, err
		}
	}
	model := filepath.Join(contractFolder(), "model")
	fill := strings.NewReplacer("{model}", model, "{folder}", folder, "{control}", s.control, "{generate}", generate)
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	program := filepath.Join(folderOf("TANDEM_PROGRAMS", "target/debug"), spec.Service)
	s.process = exec.Command(program, "serve", "--listen", s.address)
	for _, argument := range spec.Args {
		s.process.Args = append(s.process.Args, fill.Replace(argument))
	}
	s.process.Env = os.Environ()
	for name, value := range spec.Environment {
		s.process.Env = append(s.process.Env, name+"="+fill.Replace(value))
	}
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.process.Wait() // its status has no meaning after a signal
		close(s.ended)
	}()
	return s, s.connect()
}

// connect opens the connections, and waits until the server is ready.
func (s *server) connect() (err error) {
	encryption := insecure.NewCredentials()
	if s.spec.TLS != "" {
		authority, err := os.ReadFile(filepath.Join(contractFolder(), s.spec.TLS))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(authority)
		encryption = credentials.NewClientTLSFromCert(pool, "")
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(encryption),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
	}
	if s.connection, err = grpc.NewClient(s.address, options...); err != nil {
		return err
	}
	if s.controlled, err = grpc.NewClient(s.control, options...); err != nil {
		return err
	}
	if err := s.wait("connections", s.accepts); err != nil {
		return err
	}
	if s.spec.isLoading() {
		return nil
	}
	return s.wait("health SERVING", s.isServing)
}

// isLoading returns true if the server does not become ready during its vectors.
func (s *spec) isLoading() bool { return s.Ready != nil && !*s.Ready }

func (s *server) wait(what string, condition func() bool) error {
	for end := time.Now().Add(startTime); time.Now().Before(end); {
		if condition() {
			return nil
		}
		select {
		case <-s.ended:
			end = time.Time{}
		case <-time.After(50 * time.Millisecond):
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.folder, "log"))
	return fmt.Errorf("no %s:\n%s", what, log)
}

func (s *server) accepts() bool {
	connection, err := net.Dial("tcp", s.address)
	if err != nil {
		return false
	}
	connection.Close()
	return true
}

func (s *server) isServing() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	answer, err := healthv1.NewHealthClient(s.connection).Check(ctx, &healthv1.HealthCheckRequest{})
	return err == nil && answer.Status == healthv1.HealthCheckResponse_SERVING
}

// terminate sends SIGTERM, and waits until health is not SERVING.
func (s *server) terminate() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for s.isServing() {
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (s *server) stop() {
	for _, connection := range []*grpc.ClientConn{s.connection, s.controlled} {
		if connection != nil {
			connection.Close()
		}
	}
	signal := syscall.SIGTERM
	if s.spec.isLoading() {
		signal = syscall.SIGKILL // its load may not end
	}
	_ = s.process.Process.Signal(signal) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		_ = s.process.Process.Kill()
		<-s.ended
	}
}

// write makes a file of a server: text, a named pipe, or a copy of a file or folder of the contract. Zeros
// extend a copy with a size.
func write(path string, content any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if text, ok := content.(string); ok {
		return os.WriteFile(path, []byte(text), 0o644)
	}
	values := content.(map[string]any)
	if values["pipe"] != nil {
		return syscall.Mkfifo(path, 0o600)
	}
	source := filepath.Join(contractFolder(), values["copy"].(string))
	if info, err := os.Stat(source); err != nil || info.IsDir() {
		return os.CopyFS(path, os.DirFS(source))
	}
	bytes, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, bytes, 0o644); err != nil || values["size"] == nil {
		return err
	}
	return os.Truncate(path, int64(values["size"].(float64)))
}

// freeAddress returns an address whose port was free a moment ago.
func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
