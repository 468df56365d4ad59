package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/process"
)

type probeCommand struct {
	URL     []string      `arg:"" name:"url" help:"What to ask, such as http://127.0.0.1:7078/readyz."`
	Timeout time.Duration `help:"Longest time to wait for one answer." default:"5s" placeholder:"DURATION"`
	Wait    time.Duration `help:"Go on asking for so long until all answer well; 0 asks once." placeholder:"DURATION"`
}

const (
	// probeEvery is how often --wait asks again.
	probeEvery = 250 * time.Millisecond
	// probeBytesMax is how much of an answer is read: a line that says why.
	probeBytesMax = 512
)

// Help says more than one line about the command.
func (c *probeCommand) Help() string {
	return `For health checks in containers that hold nothing else which could ask: status 0 if every URL answers with 2xx, else 1
and a line that says why. The certificate of a loopback address is not checked, since the probe stands beside its server.`
}

func (c *probeCommand) Run(ctx context.Context, streams process.Streams) error {
	until := clock.System().Mono() + c.Wait
	for _, u := range c.URL {
		for {
			err := c.ask(ctx, u)
			if err == nil {
				break
			}
			if clock.System().Mono() >= until {
				return err
			}
			if err := clock.Sleep(ctx, clock.System(), probeEvery); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask asks one URL once.
func (c *probeCommand) ask(ctx context.Context, raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return process.Usagef("%q is no http or https URL", raw)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, raw, nil)
	if err != nil {
		return err
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: loopback}, // see Help
		DisableKeepAlives: true,
	}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		// An answer that cannot be read leaves its status, which says enough.
		why, _ := io.ReadAll(io.LimitReader(answer.Body, probeBytesMax))
		return fmt.Errorf("%s: %s: %s", raw, answer.Status, strings.TrimSpace(string(why)))
	}
	return nil
}
