// Package deploy tests what stands around the binaries: docker-compose.yml, deploy/ and docs/.
//
// Some of it needs nothing: the Compose file is valid by the Compose specification and closed to the outside, manifests of
// Kubernetes decode strictly into its types, every alert has a unit test and a section in the runbook, every failure code
// has one too, and every command in the docs exists with the flags that it is given.
//
// The rest runs with `make test-deploy`, which builds the binaries and sets TIDEMARK_DEPLOY_TESTS=1. There is no container
// engine in it: the services of the Compose file are started as plain processes, with the same commands, arguments and
// environment, and only host names, ports and mounted directories replaced. The demo is loaded through them and verified;
// Prometheus scrapes them with the configuration that is shipped; every expression of rules and dashboards is evaluated.
// So what stays untested is the engine itself, the images that are not ours, and Grafana.
package deploy
