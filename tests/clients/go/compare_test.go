package contract

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// README.md of tests/contract has the rules of these comparisons.

// differences returns a line for each value of expected that actual, proto3 JSON, does not have.
func differences(expected, actual any, path string) []string {
	switch expected := expected.(type) {
	case map[string]any:
		object, ok := actual.(map[string]any)
		if !ok && actual != nil {
			break
		}
		var lines []string
		for _, key := range slices.Sorted(maps.Keys(expected)) {
			lines = append(lines, differences(expected[key], object[key], strings.TrimPrefix(path+"."+key, "."))...)
		}
		return lines
	case []any:
		list, ok := actual.([]any)
		if !ok || len(list) != len(expected) {
			break
		}
		var lines []string
		for i, value := range expected {
			lines = append(lines, differences(value, list[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
		return lines
	}
	if isEqual(expected, actual) || actual == nil && isDefault(expected) {
		return nil
	}
	return []string{fmt.Sprintf("%s: expected %s, got %s", path, text(expected), text(actual))}
}

// isEqual compares floats with a tolerance: they have 7 digits, and log probabilities depend on the processor.
func isEqual(expected, actual any) bool {
	a, isNumber := expected.(float64)
	b, isOther := actual.(float64)
	if !isNumber || !isOther {
		return reflect.DeepEqual(expected, actual)
	}
	if a == math.Trunc(a) && b == math.Trunc(b) {
		return a == b
	}
	return math.Abs(a-b) <= 1e-4*max(1, math.Abs(a))
}

func isDefault(value any) bool {
	switch value := value.(type) {
	case string:
		return value == "" || value == "0" || strings.HasSuffix(value, "_UNSPECIFIED")
	case float64:
		return value == 0
	case bool:
		return !value
	case []any:
		return len(value) == 0
	}
	return false
}

func text(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

var parts = regexp.MustCompile(`[^.\[\]]+`)

// present returns a line for each path, such as `events[0].delta.text`, that value has.
func present(paths []string, value any) []string {
	var lines []string
	for _, path := range paths {
		at := value
		for _, part := range parts.FindAllString(path, -1) {
			at = child(at, part)
		}
		if at != nil {
			lines = append(lines, fmt.Sprintf("%s: expected to be unset, got %s", path, text(at)))
		}
	}
	return lines
}

func child(value any, part string) any {
	switch value := value.(type) {
	case map[string]any:
		return value[part]
	case []any:
		if i, err := strconv.Atoi(part); err == nil && i < len(value) {
			return value[i]
		}
	}
	return nil
}

type object = map[string]any

// joined joins consecutive deltas of an output, whose sizes depend on the timing, and drops `progress`
// and `parsed`: the last event has the whole.
func joined(events []object, keepsProgress bool) []any {
	result, run := []any{}, map[float64][]object{}
	end := func() {
		for _, output := range slices.Sorted(maps.Keys(run)) {
			for _, delta := range run[output] {
				result = append(result, object{"delta": delta})
			}
		}
		clear(run)
	}
	for _, event := range events {
		_, isProgress := event["progress"]
		_, isParsed := event["parsed"]
		delta, isDelta := event["delta"].(object)
		logprobs, isLogprobs := event["promptLogprobs"].(object)
		last, follows := lastLogprobs(result)
		switch {
		case isParsed || isProgress && !keepsProgress:
		case len(event) == 0: // of a newer server
		case isDelta:
			output, _ := delta["outputIndex"].(float64)
			run[output] = added(run[output], delta)
		case isLogprobs && follows:
			last["tokens"] = appended(last["tokens"], logprobs["tokens"])
		default:
			end()
			result = append(result, event)
		}
	}
	end()
	return result
}

func lastLogprobs(events []any) (object, bool) {
	if len(events) == 0 {
		return nil, false
	}
	last, ok := events[len(events)-1].(object)["promptLogprobs"].(object)
	return last, ok
}

func added(deltas []object, delta object) []object {
	hasContent := slices.ContainsFunc([]string{"text", "bytes", "tokenIds", "tokens"}, func(key string) bool {
		return delta[key] != nil
	})
	if !hasContent {
		return deltas
	}
	if len(deltas) == 0 || deltas[len(deltas)-1]["reasoning"] != delta["reasoning"] {
		return append(deltas, maps.Clone(delta))
	}
	last := deltas[len(deltas)-1]
	for key, value := range delta {
		switch key {
		case "text":
			before, _ := last[key].(string)
			last[key] = before + value.(string)
		case "bytes":
			last[key] = base64.StdEncoding.EncodeToString(bytes.Join([][]byte{decode(last[key]), decode(value)}, nil))
		case "tokenIds", "tokens":
			last[key] = appended(last[key], value)
		}
	}
	return deltas
}

func appended(list, more any) []any {
	before, _ := list.([]any)
	after, _ := more.([]any)
	return slices.Concat(before, after)
}

func decode(value any) []byte {
	encoded, _ := value.(string)
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		panic(err)
	}
	return decoded
}

// TestCompare applies the comparison to the cases that all suites share.
func TestCompare(t *testing.T) {
	var cases struct {
		Differences []struct {
			Expected, Actual any
			At               []string
		}
		Present []struct {
			Paths, At []string
			Actual    any
		}
		Joined []struct {
			Events   []object
			Progress bool
			Joined   []any
		}
		Newer []struct { // messages with fields and enum numbers of a later version
			Method, Binary string
			JSON           any
		}
	}
	if err := readJSON("../comparison.json", &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases.Differences {
		checkPaths(t, differences(c.Expected, c.Actual, ""), c.At)
	}
	for _, c := range cases.Present {
		checkPaths(t, present(c.Paths, c.Actual), c.At)
	}
	for _, c := range cases.Newer {
		if read := readNewer(t, c.Method, c.Binary); text(read) != text(c.JSON) {
			t.Errorf("expected %s, got %s", text(c.JSON), text(read))
		}
	}
	for _, c := range cases.Joined {
		if result := joined(c.Events, c.Progress); text(result) != text(c.Joined) {
			t.Errorf("expected %s, got %s", text(c.Joined), text(result))
		}
	}
}

func checkPaths(t *testing.T, lines, at []string) {
	var paths []string
	for _, line := range lines {
		path, _, _ := strings.Cut(line, ":")
		paths = append(paths, path)
	}
	if !slices.Equal(paths, at) {
		t.Errorf("expected differences at %q, got %q", at, lines)
	}
}

func readNewer(t *testing.T, method, binary string) object {
	message, err := (&request{Method: method}).answer()
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := base64.StdEncoding.DecodeString(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(bytes, message); err != nil {
		t.Fatal(err)
	}
	read, err := asJSON(message)
	if err != nil {
		t.Fatal(err)
	}
	return read
}
