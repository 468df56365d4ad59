package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/deltalog"
	"tidemark/internal/master"
	"tidemark/internal/objstore"
	"tidemark/internal/schedule"
)

// DefaultPolicy stands in the place of a table's name for the policy that holds where a table does not say otherwise. No
// table can have that name.
const DefaultPolicy = "_default"

// Origin says where a policy value comes from.
type Origin string

// The origins.
const (
	OriginTable   Origin = "table"    // a property of the table
	OriginDefault Origin = "_default" // the cluster's default policy
	OriginBuiltIn Origin = "built in"
)

// PolicyValue is one value of a policy.
type PolicyValue struct {
	Name    string `json:"name"`
	Value   string `json:"value"` // in force
	Origin  Origin `json:"origin"`
	Help    string `json:"help"`
	Problem string `json:"problem,omitempty"` // of a value that is set and cannot be used; what is in force is another
}

// Policy returns what is in force for a table, or by default, in the order of documentation.
func (c *Control) Policy(ctx context.Context, name string) ([]PolicyValue, error) {
	defaults, _, err := c.defaultPolicy(ctx)
	if err != nil {
		return nil, err
	}
	layers := []layer{{OriginDefault, defaults}}
	if name != DefaultPolicy {
		t, err := c.load(ctx, name)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer{OriginTable, t.Policy})
	}
	return inForce(layers), nil
}

// layer is values of one origin, without prefix.
type layer struct {
	origin Origin
	values map[string]string
}

// inForce lays values over each other, the last one on top. A value that cannot be used is reported and does not count,
// as for a master.
func inForce(layers []layer) []PolicyValue {
	names, help := schedule.PolicyKeys()
	policy := schedule.DefaultPolicy()
	values := make([]PolicyValue, len(names))
	for i := range names {
		values[i] = PolicyValue{Name: names[i], Help: help[i], Origin: OriginBuiltIn}
	}
	for _, l := range layers {
		for i, name := range names {
			text, set := l.values[name]
			if !set {
				continue
			}
			next, err := policy.With(map[string]string{name: text})
			if err != nil {
				values[i].Problem = err.Error()
				continue
			}
			policy, values[i].Origin = next, l.origin
		}
	}
	for i, name := range names {
		values[i].Value = policy.Values()[name]
	}
	return values
}

// SetPolicy sets values of a table's policy, or of the default policy. A value that could not be used is refused, and
// then nothing is set.
func (c *Control) SetPolicy(ctx context.Context, name string, values map[string]string, o Options) (Done, error) {
	if len(values) == 0 {
		return Done{}, refuse(CodeNothingToChange, "nothing to set: give at least one NAME=VALUE; known are %s", knownPolicies())
	}
	if _, err := schedule.DefaultPolicy().With(values); err != nil {
		return Done{}, err
	}
	var words []string
	changes := map[string]*string{}
	for n, v := range values {
		words, changes[n] = append(words, n+" = "+v), text(v)
	}
	changed, told, err := c.changePolicy(ctx, name, "policy set", changes, o)
	if err != nil {
		return Done{}, err
	}
	if !changed {
		return o.done("policy set", name, "", false, "%s had %s already.", whose(name), listed(words)), nil
	}
	return o.done("policy set", name, "", true, "%s now has %s.%s", whose(name), listed(words), told), nil
}

// UnsetPolicy removes values of a table's policy, or of the default policy, so that what lies below holds again.
func (c *Control) UnsetPolicy(ctx context.Context, name string, names []string, o Options) (Done, error) {
	if len(names) == 0 {
		return Done{}, refuse(CodeNothingToChange, "nothing to unset: give at least one NAME; known are %s", knownPolicies())
	}
	// A name that is not known may be unset: it may stand there all the same.
	changes := map[string]*string{}
	for _, n := range names {
		changes[n] = nil
	}
	changed, told, err := c.changePolicy(ctx, name, "policy unset", changes, o)
	if err != nil {
		return Done{}, err
	}
	if !changed {
		return o.done("policy unset", name, "", false, "%s did not set %s.", whose(name), listed(names)), nil
	}
	return o.done("policy unset", name, "", true, "%s no longer sets %s.%s", whose(name), listed(names), told), nil
}

func whose(name string) string {
	if name == DefaultPolicy {
		return "The default policy"
	}
	return "The policy of table " + name
}

func knownPolicies() string {
	names, _ := schedule.PolicyKeys()
	return strings.Join(names, ", ")
}

// changePolicy changes values by name without prefix; nil removes one.
func (c *Control) changePolicy(ctx context.Context, name, operation string, changes map[string]*string, o Options) (changed bool, told string, err error) {
	if name == DefaultPolicy {
		return c.changeDefault(ctx, changes, o)
	}
	properties := map[string]*string{}
	for n, v := range changes {
		properties[deltalog.PropertyPolicy+n] = v
	}
	t, changed, err := c.changeProperties(ctx, name, operation, properties, o)
	if err == nil && changed {
		told = c.tell(ctx, t, o)
	}
	return changed, told, err
}

// defaultPolicy reads the default policy of storage.
func (c *Control) defaultPolicy(ctx context.Context) (values map[string]string, etag string, err error) {
	body, info, err := c.d.Store.Get(ctx, master.PolicyKey)
	if errors.Is(err, objstore.ErrNotFound) {
		return map[string]string{}, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the default policy: %w", err)
	}
	var doc struct {
		V      int               `json:"v"`
		Values map[string]string `json:"policy"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.V != 1 {
		return nil, "", refuse("policy_unreadable", "%s under the root is damaged or of another version of Tidemark; put a good copy back, or remove it to start from the built-in policy", master.PolicyKey)
	}
	if doc.Values == nil {
		doc.Values = map[string]string{}
	}
	return doc.Values, info.ETag, nil
}

// changeDefault replaces the default policy of storage, by compare, and copies it to etcd. The owner of slot 0 copies it
// anew from time to time, so a copy that fails costs half a minute.
func (c *Control) changeDefault(ctx context.Context, changes map[string]*string, o Options) (changed bool, told string, err error) {
	retry := objstore.Retry{Clock: c.d.Clock, Random: c.d.Random}
	for range roundsMax {
		was, etag, err := c.defaultPolicy(ctx)
		if err != nil {
			return false, "", err
		}
		next := maps.Clone(was)
		for n, v := range changes {
			if v == nil {
				delete(next, n)
			} else {
				next[n] = *v
			}
		}
		if maps.Equal(was, next) || o.DryRun {
			return !maps.Equal(was, next), "", nil
		}
		body, err := schedule.MarshalPolicy(next)
		if err != nil {
			return false, "", fmt.Errorf("writing the default policy: %w", err)
		}
		var r objstore.Result
		if etag == "" {
			r = objstore.PutOnce(ctx, c.d.Store, master.PolicyKey, body, retry)
		} else {
			r = objstore.Replace(ctx, c.d.Store, master.PolicyKey, body, etag, retry)
		}
		switch {
		case r.Err == nil:
			return true, c.copyDefault(ctx, body), nil
		case errors.Is(r.Err, objstore.ErrExists), errors.Is(r.Err, objstore.ErrMismatch), errors.Is(r.Err, objstore.ErrNotFound):
			continue // somebody else was faster
		}
		return false, "", fmt.Errorf("writing the default policy: %w", r.Err)
	}
	return false, "", refuse(CodeContended, "the default policy was not changed: others keep changing it; try again")
}

// copyDefault copies the default policy to etcd and returns what to add to the sentence.
func (c *Control) copyDefault(ctx context.Context, body []byte) string {
	if c.d.Client == nil {
		return " A running cluster takes it over within a minute."
	}
	if _, err := c.d.Client.Put(ctx, c.d.Keys.DefaultPolicy(), string(body), clientv3.WithLease(clientv3.NoLease)); err != nil {
		c.d.Log.Warn("could not copy the default policy to etcd", "error", err)
		return " It could not be copied to etcd now; the cluster takes it over within a minute."
	}
	return ""
}
