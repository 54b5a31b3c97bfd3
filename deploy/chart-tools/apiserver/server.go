package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// Plugins whose objects the manifests do not bring: service accounts, classes of priority and of
// runtime.
const absent = "ServiceAccount,Priority,RuntimeClass"

// start runs etcd and the API server until the process ends, and returns how to reach the server.
func start(ctx context.Context, folder string) (*rest.Config, error) {
	store, err := startEtcd(filepath.Join(folder, "etcd"))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	token, err := secrets(folder)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	command := apiserver.NewAPIServerCommand()
	command.SetArgs([]string{
		"--etcd-servers=" + store,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + folder,
		"--token-auth-file=" + filepath.Join(folder, "tokens.csv"),
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=198.19.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + filepath.Join(folder, "account.key"),
		"--service-account-signing-key-file=" + filepath.Join(folder, "account.key"),
		"--disable-admission-plugins=" + absent,
		"--v=0",
	})
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	config := &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", port),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(folder, "apiserver.crt")},
		QPS:             500,
		Burst:           500,
	}
	return config, untilReady(ctx, config, ended)
}

func startEtcd(folder string) (string, error) {
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync = folder, "error", true
	loopback := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{loopback}, []url.URL{loopback}
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = []url.URL{loopback}, []url.URL{loopback}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	<-etcd.Server.ReadyNotify()
	return "http://" + etcd.Clients[0].Addr().String(), nil
}

// secrets writes the key of service accounts and the administrator's token, and returns the token.
func secrets(folder string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(folder, "account.key"), block, 0o600); err != nil {
		return "", err
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	token := hex.EncodeToString(random)
	line := token + ",admin,admin,system:masters\n"
	return token, os.WriteFile(filepath.Join(folder, "tokens.csv"), []byte(line), 0o600)
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func untilReady(ctx context.Context, config *rest.Config, ended <-chan error) error {
	for {
		if client, err := kubernetes.NewForConfig(config); err == nil {
			if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
				return nil
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the API server has ended: %v", err)
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
