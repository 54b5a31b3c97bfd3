// Validates manifests with a real API server: every object of every file is created with a
// server-side dry run, with strict field validation. A pod is created for each template of a
// Deployment too, because the Pod Security Standards apply to pods only.
//
//	apiserver [--crd FILE]... [--privileged FILE]... FILE...
//
// The files are output of `helm template`. Objects of a --privileged file may break the restricted
// standard, and must break it. The exit code is 1 if an object is refused. Everything listens on
// loopback, and its files are in a temporary folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func main() {
	var crds, privileged list
	flag.Var(&crds, "crd", "file of a CustomResourceDefinition")
	flag.Var(&privileged, "privileged", "file of manifests that the restricted standard must refuse")
	flag.Parse()
	if err := run(crds, privileged, flag.Args()); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(crds, privileged, files []string) error {
	folder, err := os.MkdirTemp("", "tandem-apiserver-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	log, err := divertLog(filepath.Join(folder, "server.log"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	config, err := start(ctx, folder)
	if err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("%w\n%s", err, text)
	}
	server, err := connect(ctx, config)
	if err != nil {
		return err
	}
	for _, file := range crds {
		if err := server.install(ctx, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := server.discover(); err != nil {
		return err
	}
	refused := 0
	for _, file := range files {
		refused += report(file, server.check(ctx, file, "restricted"))
	}
	for _, file := range privileged {
		refused += report(file, server.check(ctx, file, "privileged"))
		refused += expect(file, server.check(ctx, file, "restricted"))
	}
	if refused > 0 {
		return fmt.Errorf("%d objects were refused", refused)
	}
	return nil
}

// divertLog writes standard error, the log of the server, to a file. The results are on standard
// output.
func divertLog(path string) (string, error) {
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	return path, unix.Dup2(int(file.Fd()), int(os.Stderr.Fd()))
}

// report prints the result of a file, and returns the number of refused objects.
func report(file string, results []result) int {
	refused := 0
	for _, r := range results {
		if r.err != nil {
			fmt.Printf("%s: %s refused: %v\n", file, r.object, r.err)
			refused++
		}
	}
	fmt.Printf("%s: %d objects, %d refused\n", file, len(results), refused)
	return refused
}

// expect returns 0 if a pod broke the restricted standard.
func expect(file string, results []result) int {
	for _, r := range results {
		if r.err != nil && strings.Contains(r.err.Error(), "violates PodSecurity") {
			fmt.Printf("%s: the restricted standard refuses %s, as expected\n", file, r.object)
			return 0
		}
	}
	fmt.Printf("%s: the restricted standard refuses no pod; pass it without --privileged\n", file)
	return 1
}
