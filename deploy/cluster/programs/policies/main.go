// Enforces NetworkPolicies once, for the pods that run now: a stand-in for a network plugin. It writes
// the ingress rules of all policies into one table of nftables. It supports selectors of pods and
// namespaces, and ports by name and number; anything else is an error.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

type cluster struct {
	pods       []core.Pod
	namespaces map[string]labels.Set
	policies   []networking.NetworkPolicy
}

func main() {
	rules, err := run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Println(rules, "rules")
}

func run(ctx context.Context) (int, error) {
	found, err := read(ctx)
	if err != nil {
		return 0, err
	}
	rules, err := found.rules()
	if err != nil {
		return 0, err
	}
	table := "table ip policies {}\ndelete table ip policies\ntable ip policies {\nchain forward {\n" +
		"type filter hook forward priority 0; policy accept;\nct state established,related accept\n" +
		strings.Join(rules, "\n") + "\n}\n}\n"
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(table)
	if output, err := nft.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("nft refuses the rules: %w: %s", err, output)
	}
	return len(rules), nil
}

func read(ctx context.Context) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods, err := client.CoreV1().Pods("").List(ctx, meta.ListOptions{})
	if err != nil {
		return nil, err
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, meta.ListOptions{})
	if err != nil {
		return nil, err
	}
	policies, err := client.NetworkingV1().NetworkPolicies("").List(ctx, meta.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := &cluster{pods: pods.Items, namespaces: map[string]labels.Set{}, policies: policies.Items}
	for _, namespace := range namespaces.Items {
		found.namespaces[namespace.Name] = namespace.Labels
	}
	return found, nil
}

// rules returns an accept rule for each pod and admitted peer, and then a drop rule for each isolated
// pod.
func (c *cluster) rules() ([]string, error) {
	var accepted, dropped []string
	for _, policy := range c.policies {
		if !slices.Contains(policy.Spec.PolicyTypes, networking.PolicyTypeIngress) {
			continue
		}
		pods, err := c.selected(policy.Namespace, networking.NetworkPolicyPeer{PodSelector: &policy.Spec.PodSelector})
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			dropped = append(dropped, fmt.Sprintf("ip daddr %s drop", pod.Status.PodIP))
			for _, rule := range policy.Spec.Ingress {
				lines, err := c.admitted(policy.Namespace, pod, rule)
				if err != nil {
					return nil, err
				}
				accepted = append(accepted, lines...)
			}
		}
	}
	return append(accepted, dropped...), nil
}

func (c *cluster) admitted(namespace string, pod core.Pod, rule networking.NetworkPolicyIngressRule) ([]string, error) {
	if len(rule.From) == 0 || len(rule.Ports) == 0 {
		return nil, fmt.Errorf("a rule of %s has no peer or no port", namespace)
	}
	var lines []string
	for _, port := range rule.Ports {
		number, err := portOf(pod, port)
		if err != nil {
			return nil, err
		}
		for _, from := range rule.From {
			peers, err := c.selected(namespace, from)
			if err != nil {
				return nil, err
			}
			for _, peer := range peers {
				lines = append(lines, fmt.Sprintf("ip saddr %s ip daddr %s tcp dport %d accept",
					peer.Status.PodIP, pod.Status.PodIP, number))
			}
		}
	}
	return lines, nil
}

// selected returns the pods of a peer that have an address.
func (c *cluster) selected(namespace string, peer networking.NetworkPolicyPeer) ([]core.Pod, error) {
	if peer.IPBlock != nil {
		return nil, fmt.Errorf("a policy of %s has an ipBlock", namespace)
	}
	inNamespace := func(name string) bool { return name == namespace }
	if peer.NamespaceSelector != nil {
		selector, err := meta.LabelSelectorAsSelector(peer.NamespaceSelector)
		if err != nil {
			return nil, err
		}
		inNamespace = func(name string) bool { return selector.Matches(c.namespaces[name]) }
	}
	selector := labels.Everything()
	if peer.PodSelector != nil {
		var err error
		if selector, err = meta.LabelSelectorAsSelector(peer.PodSelector); err != nil {
			return nil, err
		}
	}
	var pods []core.Pod
	for _, pod := range c.pods {
		if pod.Status.PodIP != "" && inNamespace(pod.Namespace) && selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

func portOf(pod core.Pod, port networking.NetworkPolicyPort) (int32, error) {
	if port.Port == nil || port.EndPort != nil || (port.Protocol != nil && *port.Protocol != core.ProtocolTCP) {
		return 0, fmt.Errorf("a policy of %s has a port that is no single TCP port", pod.Namespace)
	}
	if port.Port.Type == intstr.Int {
		return port.Port.IntVal, nil
	}
	for _, container := range pod.Spec.Containers {
		for _, named := range container.Ports {
			if named.Name == port.Port.StrVal {
				return named.ContainerPort, nil
			}
		}
	}
	return 0, fmt.Errorf("%s has no port %s", pod.Name, port.Port.StrVal)
}
