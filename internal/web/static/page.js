// The page's own script: follow the stream of changes, draw the charts, open the dialog. Everything else is htmx and HTML.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);

  // What the head of the page says of the connection.
  const say = (word, kind) => {
    const state = byId("state");
    if (!state || (state.dataset.kind === kind && state.lastElementChild.textContent === word)) return;
    state.dataset.kind = kind;
    state.lastElementChild.textContent = word;
  };

  // A page in the background holds no stream: browsers allow six connections to a server without TLS, for all its pages.
  let stream = null;
  const follow = () => {
    if (stream || document.hidden) return;
    stream = new EventSource("/api/v1/events");
    stream.addEventListener("change", (event) => {
      const change = JSON.parse(event.data);
      if (change.fresh) say("live", "live"); else say("etcd is away", "stale");
      document.body.dispatchEvent(new CustomEvent("tidemark-change"));
      charts.follow();
    });
    stream.onerror = () => {
      say("not connected", "gone");
      if (stream.readyState !== EventSource.CLOSED) return; // it tries again by itself
      leave();
      setTimeout(follow, 5000);
    };
  };
  const leave = () => {
    if (stream) stream.close();
    stream = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  window.addEventListener("pagehide", leave);

  const bytes = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let i = 0;
    for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
    return (n >= 100 || n === Math.round(n) ? n.toFixed(0) : n.toFixed(1)) + " " + units[i];
  };
  const binary = Array.from({ length: 60 }, (_, i) => 2 ** i);
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

  // The charts of the overview: one read of what is new for all of them.
  const charts = {
    plots: [],
    samples: [],
    busy: false,
    start() {
      const places = [...document.querySelectorAll(".chart")];
      if (places.length === 0 || !window.uPlot) return;
      this.plots = places.map((place) => ({ place, field: place.dataset.field, plot: this.draw(place) }));
      new ResizeObserver(() => this.plots.forEach(({ place, plot }) => plot.setSize({ width: place.clientWidth, height: place.clientHeight }))).observe(places[0]);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plots.forEach(({ plot }) => plot.redraw()));
    },
    draw(place) {
      const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
      const text = place.dataset.unit === "bytes" ? bytes : (n) => compact.format(n);
      const font = "12px system-ui, sans-serif";
      const axis = { stroke: () => colour("--faint"), font, grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false } };
      return new uPlot({
        width: place.clientWidth, height: place.clientHeight, legend: { show: false }, padding: [8, 14, 0, 0],
        cursor: { x: false, y: false, points: { show: false }, drag: { x: false, y: false } },
        scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1)] }, x: { time: true } },
        axes: [
          { ...axis, size: 26, space: 80, values: (_, ticks, __, ___, step) => ticks.map((t) => new Date(t * 1000).toTimeString().slice(0, step < 60 ? 8 : 5)) },
          { ...axis, size: 64, space: 30, values: (_, ticks) => ticks.map(text), ...(place.dataset.unit === "bytes" && { incrs: binary }) },
        ],
        series: [{}, { stroke: () => colour(place.dataset.colour), width: 1.5, fill: () => colour(place.dataset.colour) + "22", points: { show: false } }],
      }, [[], []], place);
    },
    async follow() {
      if (this.plots.length === 0 || this.busy) return;
      this.busy = true;
      try {
        const last = this.samples.length ? this.samples[this.samples.length - 1].ms : 0;
        const answer = await fetch("/api/v1/history?after_ms=" + last, { headers: { Accept: "application/json" } });
        if (!answer.ok) return;
        const { samples } = await answer.json();
        if (samples.length === 0) return;
        this.samples = this.samples.concat(samples).slice(-900);
        const x = this.samples.map((s) => s.ms / 1000);
        // Half a minute at least, so that the first samples do not fill the chart.
        const range = { min: Math.min(x[0], x[x.length - 1] - 30), max: x[x.length - 1] };
        this.plots.forEach(({ field, plot }) => {
          plot.setData([x, this.samples.map((s) => s[field])], false);
          plot.setScale("x", range);
        });
      } catch {
        // Not connected; the head of the page says so.
      } finally {
        this.busy = false;
      }
    },
  };

  // What a person asks for wins over what was asked before for the same place, and over the page's own refreshing of it: an
  // older answer is not shown, and no refresh begins while an answer is awaited.
  let awaited = 0, asked = 0;
  document.addEventListener("htmx:beforeRequest", (event) => {
    const { elt, target, xhr } = event.detail;
    if (target?.id !== "live") return;
    if (elt === target) {
      if (awaited > 0) event.preventDefault();
    } else {
      asked++;
      awaited++;
      xhr.addEventListener("loadend", () => awaited--);
    }
    xhr.asked = asked;
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr } = event.detail;
    if (target?.id === "live" && xhr.asked !== asked) event.detail.shouldSwap = false;
  });

  // Questions: the server renders them, and says in them what was done.
  const dialog = byId("dialog");
  let opener = null;
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.target?.id === "dialog-body" && !dialog.open) opener = document.activeElement;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target?.id !== "dialog-body") return; // going back in history has none
    if (!dialog.open) dialog.showModal();
    if (dialog.querySelector("[data-done]")) document.body.dispatchEvent(new CustomEvent("tidemark-done"));
    const focus = dialog.querySelector("textarea, button[type=submit], button");
    if (focus) focus.focus();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  dialog.addEventListener("close", () => {
    if (dialog.open) return; // the event comes late, and the next question is open already
    byId("dialog-body").replaceChildren();
    if (opener && opener.isConnected) opener.focus();
  });

  // "/" goes to the search field, as in many tools.
  document.addEventListener("keydown", (event) => {
    const search = byId("search");
    if (event.key !== "/" || !search || event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    search.focus();
    search.select();
  });

  charts.start();
  charts.follow();
  follow();
})();
