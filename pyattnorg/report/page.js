// Draws the figures of one report. Everything is found inside the report that holds this script, so that several
// reports can stand in one document. `Plotly` comes from the script before this one.
(function () {
  "use strict";
  const here = document.currentScript;
  const root = (here && here.closest(".pyattnorg")) || document.getElementById("@ROOT@");
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const config = {
    responsive: true, displaylogo: false, displayModeBar: "hover", typesetMath: false,
    showSendToCloud: false, plotlyServerURL: "",  // what is drawn here stays here
    toImageButtonOptions: { format: "svg" },
  };

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  // Text and lines in the colours of the page, light or dark.
  function dressed(layout) {
    const ink = colour("--ink"), line = colour("--line"), card = colour("--card");
    const axis = { color: ink, gridcolor: line, zerolinecolor: line, linecolor: line };
    const out = Object.assign({}, layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: layout.plot_bgcolor || "rgba(0,0,0,0)", autosize: true,
      font: { color: ink, size: 12, family: getComputedStyle(root).fontFamily },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: ink },
      hoverlabel: { bgcolor: card, bordercolor: line, align: "left", font: { color: ink, size: 13 } },
    });
    for (const name of ["xaxis", "yaxis"]) out[name] = Object.assign({}, axis, layout[name]);
    if (layout.scene) {
      out.scene = Object.assign({}, layout.scene);
      for (const name of ["xaxis", "yaxis", "zaxis"]) {
        out.scene[name] = Object.assign({ showbackground: false, showspikes: false }, axis, layout.scene[name]);
      }
    }
    return out;
  }

  function hasWebGL() {
    try {
      const canvas = document.createElement("canvas");
      return !!(canvas.getContext("webgl2") || canvas.getContext("webgl"));
    } catch (error) {
      return false;
    }
  }

  // Where the browser cannot draw in three dimensions, two coordinates are better than an empty box.
  function flat(figure) {
    const scene = figure.layout.scene;
    for (const trace of figure.traces) {
      trace.type = "scatter";
      trace.marker.size = 9;
      delete trace.z;
    }
    figure.layout.xaxis = scene.xaxis;
    figure.layout.yaxis = scene.yaxis;
    figure.layout.margin = { l: 60, r: 10, t: 10, b: 50 };
    delete figure.layout.scene;
  }

  // As many names along each axis as have room; zooming in brings the others.
  function ticks(box, names) {
    const change = {};
    for (const axis of Object.keys(names)) {
      const drawn = box._fullLayout[axis], all = names[axis];
      const ends = drawn.range.map(Number).sort((a, b) => a - b);
      const first = Math.max(0, Math.ceil(ends[0])), last = Math.min(all.length - 1, Math.floor(ends[1]));
      const step = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, Math.floor(drawn._length / 12))));
      const at = [];
      for (let i = first; i <= last; i += step) at.push(i);
      change[axis + ".tickmode"] = "array";
      change[axis + ".tickvals"] = at;
      change[axis + ".ticktext"] = at.map((i) => all[i]);
      change[axis + ".tickfont.size"] = 10;
    }
    return change;
  }

  function draw(box) {
    const figure = data[box.dataset.figure];
    if (figure.layout.scene && !hasWebGL()) flat(figure);
    Plotly.newPlot(box, figure.traces, dressed(figure.layout), config);
    if (!Object.keys(figure.ticks).length) return;
    let busy = false;
    const rename = function () {
      if (busy) return;
      busy = true;
      Plotly.relayout(box, ticks(box, figure.ticks)).then(() => { busy = false; }, () => { busy = false; });
    };
    rename();
    box.on("plotly_relayout", rename);
  }

  const boxes = Array.from(root.querySelectorAll(".figure"));
  boxes.forEach(draw);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const redraw = () => boxes.forEach((box) => { Plotly.purge(box); draw(box); });
  if (dark.addEventListener) dark.addEventListener("change", redraw);

  // Tables whose head is pressed are sorted by that column; numbers downwards first.
  for (const table of root.querySelectorAll("table.sortable")) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => head.addEventListener("click", () => {
      const number = head.classList.contains("number");
      const up = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") !== "ascending" : !number;
      const value = (row) => {
        const cell = row.cells[column], said = cell.dataset.value || cell.textContent;
        return number ? Number(said) : said;
      };
      const rows = Array.from(table.tBodies[0].rows);
      rows.sort((a, b) => {
        const x = value(a), y = value(b);
        const order = number ? x - y : x.localeCompare(y, undefined, { numeric: true });
        return up ? order : -order;
      });
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      table.tBodies[0].append(...rows);
    }));
  }
})();
