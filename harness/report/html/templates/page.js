// Draws the charts, and draws them again in the other colours when the reader's mode changes.
"use strict";
(() => {
  const config = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // a report stays where it is
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["lasso2d", "select2d"],
  };

  // plotly knows no CSS variable: each is looked up, wherever in a figure it stands.
  function coloured(value, style) {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((each) => coloured(each, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, each]) => [key, coloured(each, style)]),
      );
    }
    return value;
  }

  const charts = [...document.querySelectorAll("script[data-of]")].map((source) => ({
    div: document.getElementById(source.dataset.of),
    figure: JSON.parse(source.textContent),
  }));

  // A heat map of categories: what a cell is called, for whoever points at it.
  function named({ data, names }) {
    if (!names) return;
    const [rows, columns] = data[0].z.shape.split(",").map(Number);
    const codes = atob(data[0].z.bdata);
    data[0].text = Array.from({ length: rows }, (_, row) =>
      Array.from({ length: columns }, (_, column) => names[codes.charCodeAt(row * columns + column)]),
    );
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    for (const { div, figure } of charts) {
      const { data, layout } = coloured(figure, style);
      Plotly.react(div, data, layout, { ...config, ...figure.config });
    }
  }

  for (const { figure } of charts) named(figure);
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
