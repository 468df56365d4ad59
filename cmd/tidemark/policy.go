package main

import (
	"context"
	"strings"

	"tidemark/internal/control"
	"tidemark/internal/process"
)

type policyCommand struct {
	Get   policyGet   `cmd:"" help:"Show the policy that is in force for a table, and where each value comes from."`
	Set   policySet   `cmd:"" help:"Set values of a policy."`
	Unset policyUnset `cmd:"" help:"Remove values of a policy, so that the default holds again."`
}

// Help says more than one line about the command.
func (c *policyCommand) Help() string {
	return `A policy says when work on a table is due. "_default" in the place of a table is the policy of every table that does not say
otherwise. Policies are kept on storage, so they outlive etcd.

  tidemark policy get flights
  tidemark policy set flights max_wait=2m min_generations=4
  tidemark policy set _default max_parallelism=8
  tidemark policy unset flights max_wait`
}

// policyPath is that of a table's policy, or of the default.
func policyPath(name string) string {
	if name == control.DefaultPolicy {
		return "/policy"
	}
	return ofTable(name, "/policy")
}

type policyGet struct {
	clusterFlags
	listFlags
	Name string `arg:"" optional:"" default:"_default" help:"The table, or _default."`
}

func (c *policyGet) Run(ctx context.Context, streams process.Streams) error {
	policy, err := ask[struct{ Values []control.PolicyValue }](ctx, c.clusterFlags, streams, access{storageFirst: true}, policyPath(c.Name))
	if err != nil {
		return err
	}
	return printList(streams.Out, c.listFlags, []string{"NAME", "VALUE", "FROM", "MEANING"}, policy.Values, func(v control.PolicyValue) []string {
		meaning := v.Help
		if v.Problem != "" {
			meaning += "; NOT IN FORCE: " + v.Problem
		}
		return []string{v.Name, v.Value, string(v.Origin), meaning}
	})
}

type policySet struct {
	actFlags
	Name   string   `arg:"" help:"The table, or _default."`
	Values []string `arg:"" name:"name=value" help:"What to set, such as max_wait=2m."`
}

func (c *policySet) Run(ctx context.Context, streams process.Streams) error {
	values := map[string]string{}
	for _, v := range c.Values {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return process.Usagef("%q is not NAME=VALUE, such as max_wait=2m", v)
		}
		values[name] = value
	}
	return c.run(ctx, streams, access{storageFirst: true}, policyPath(c.Name), map[string]any{"set": values})
}

type policyUnset struct {
	actFlags
	Name  string   `arg:"" help:"The table, or _default."`
	Names []string `arg:"" name:"value" help:"Names of the values, such as max_wait."`
}

func (c *policyUnset) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, access{storageFirst: true}, policyPath(c.Name), map[string]any{"unset": c.Names})
}
