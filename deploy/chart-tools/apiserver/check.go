package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// The server, as the checks use it.
type server struct {
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
	mapper    meta.RESTMapper
}

// The result of one object: its kind and name, and the reason of a refusal.
type result struct {
	object string
	err    error
}

var (
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	crds       = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
)

// connect makes a namespace for each of the Pod Security Standards that the checks use.
func connect(ctx context.Context, config *rest.Config) (*server, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	finder, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	for _, standard := range []string{"restricted", "privileged"} {
		namespace := &unstructured.Unstructured{}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(standard)
		namespace.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": standard})
		if _, err := client.Resource(namespaces).Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return &server{client: client, discovery: finder}, nil
}

// install adds the definitions of a file, and waits until the server has them.
func (s *server) install(ctx context.Context, file string) error {
	objects, err := read(file)
	if err != nil {
		return err
	}
	for _, object := range objects {
		made, err := s.client.Resource(crds).Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for !established(made) {
			time.Sleep(100 * time.Millisecond)
			if made, err = s.client.Resource(crds).Get(ctx, object.GetName(), metav1.GetOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, one := range conditions {
		condition, _ := one.(map[string]any)
		if condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

func (s *server) discover() error {
	resources, err := restmapper.GetAPIGroupResources(s.discovery)
	if err != nil {
		return err
	}
	s.mapper = restmapper.NewDiscoveryRESTMapper(resources)
	return nil
}

// check creates every object of a file in the namespace, and the pod of each template, as a dry run.
func (s *server) check(ctx context.Context, file, namespace string) []result {
	objects, err := read(file)
	if err != nil {
		return []result{{file, err}}
	}
	if len(objects) == 0 {
		return []result{{file, errors.New("the file has no object")}}
	}
	var results []result
	for _, object := range objects {
		results = append(results, s.create(ctx, object, namespace))
		if pod := podOf(object); pod != nil {
			results = append(results, s.create(ctx, pod, namespace))
		}
	}
	return results
}

func (s *server) create(ctx context.Context, object *unstructured.Unstructured, namespace string) result {
	kind := object.GroupVersionKind()
	name := fmt.Sprintf("%s %s", kind.Kind, object.GetName())
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return result{name, err}
	}
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"}
	resource := s.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		_, err = resource.Namespace(namespace).Create(ctx, object, options)
	} else {
		_, err = resource.Create(ctx, object, options)
	}
	return result{name, err}
}

// podOf returns a pod of the template of a Deployment, or nil for other objects.
func podOf(object *unstructured.Unstructured) *unstructured.Unstructured {
	template, found, _ := unstructured.NestedMap(object.Object, "spec", "template")
	if !found || object.GetKind() != "Deployment" {
		return nil
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(object.GetName() + "-pod")
	return pod
}

func read(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
