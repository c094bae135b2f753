// What moves on the page of a report: charts by Chart.js from the data in #data. Whatever comes from runs is put in as text.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const root = document.documentElement;
  const shown = data.runs.map(() => true);
  const settings = {smoothing: 0, log: false, axis: 'step'};
  const charts = [];

  const isDark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  // Colors that can be told apart with any eyes, on either background; each further eight runs have another dash.
  const LIGHT = ['#0a58ca', '#b34700', '#00755a', '#8b2fa0', '#7a6200', '#c2185b', '#0b7285', '#57606a'];
  const DARK = ['#79b8ff', '#ffa657', '#56d4b0', '#d2a8ff', '#e3c04f', '#ff8fb1', '#6bd3e0', '#b0bac5'];
  const color = (i) => (isDark() ? DARK : LIGHT)[i % 8];
  const dash = (i) => [[], [7, 3], [2, 3], [9, 3, 2, 3]][Math.floor(i / 8) % 4];

  // An exponential mean that is not drawn to 0 at its beginning; what is not a number stays a gap.
  function smoothed(values, weight) {
    if (weight === 0) return values;
    let mean = 0, sum = 0;
    return values.map((value) => {
      if (value === null) return null;
      mean = weight * mean + (1 - weight) * value;
      sum = weight * sum + (1 - weight);
      return mean / sum;
    });
  }

  function pointsOf(chart, series) {
    if (!chart.figures) return series.points.map(([x, y]) => ({x, y})).sort((a, b) => a.x - b.x);  // Chart.js takes them to be sorted
    const lines = data.runs[series.run][series.split];
    const values = lines.figures[series.figure];
    const drawn = series.split === 'train' ? smoothed(values, settings.smoothing) : values;
    const isLog = settings.log;
    return drawn.map((y, i) => ({x: lines[settings.axis][i], y: isLog && y !== null && y <= 0 ? null : y}));
  }

  function datasetOf(chart, series, index) {
    const own = series.run === undefined ? index : series.run;
    const isPoints = series.style === 'points';
    return {
      label: series.label, data: pointsOf(chart, series), hidden: series.run !== undefined && !shown[series.run],
      borderColor: series.style === 'plain' ? css('--soft') : color(own), backgroundColor: isPoints ? color(own) : 'transparent',
      borderWidth: isPoints ? 0 : series.split === 'eval' ? 2.5 : 1.5, borderDash: series.style === 'plain' ? [4, 4] : dash(own),
      showLine: !isPoints, pointRadius: isPoints ? 2 : series.split === 'eval' ? 3 : series.count < 30 ? 2 : 0,
      pointBackgroundColor: series.style === 'plain' ? css('--soft') : color(own), pointHitRadius: 6, spanGaps: true, tension: 0,
    };
  }

  function axis(title, type) {
    return {
      type, title: {display: true, text: title, color: css('--soft')}, grid: {color: css('--line')},
      ticks: {color: css('--soft'), maxRotation: 0, autoSkipPadding: 12, callback: (value) => Number(value.toPrecision(6)).toLocaleString('en', {maximumSignificantDigits: 6})},
    };
  }

  function optionsOf(chart) {
    const x = chart.figures ? (settings.axis === 'step' ? 'step' : 'seconds of training') : chart.x;
    return {
      animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: Boolean(chart.figures),
      interaction: {mode: chart.figures ? 'index' : 'nearest', intersect: false, axis: 'x'},
      scales: {x: axis(x, 'linear'), y: axis(chart.y, chart.figures && settings.log ? 'logarithmic' : 'linear')},
      plugins: {
        legend: {display: !chart.figures && chart.series.length > 1, labels: {color: css('--ink'), boxHeight: 1, boxWidth: 18}},
        tooltip: {mode: 'nearest', callbacks: {title: (items) => items.length ? `${x} ${items[0].parsed.x}` : ''}},
      },
    };
  }

  function draw(entry) {
    entry.drawn.options = optionsOf(entry.chart);
    entry.drawn.data.datasets = entry.chart.series.map((series, i) => datasetOf(entry.chart, series, i));
    entry.drawn.update('none');
    if (entry.details.open) writeNumbers(entry);
  }
  const drawAll = () => charts.forEach(draw);

  // The table behind a chart: made when it is opened, as long as the chart's longest line.
  function writeNumbers(entry) {
    const table = document.createElement('table');
    const add = (row, tag, text) => { const cell = document.createElement(tag); cell.textContent = text; row.append(cell); return cell; };
    table.createCaption().textContent = entry.chart.title + ', as it was logged';
    const head = table.createTHead().insertRow();
    const body = table.createTBody();
    for (const title of ['line', entry.chart.figures ? settings.axis : entry.chart.x, entry.chart.y]) add(head, 'th', title).scope = 'col';
    entry.chart.series.forEach((series) => {
      if (series.run !== undefined && !shown[series.run]) return;
      const lines = entry.chart.figures ? data.runs[series.run][series.split] : null;
      const rows = lines ? lines[settings.axis].map((x, i) => [x, lines.figures[series.figure][i]]) : series.points;
      for (const [x, y] of rows) {
        const row = body.insertRow();
        for (const text of [series.label, x, y === null ? 'not finite' : y]) add(row, 'td', String(text));
      }
    });
    entry.numbers.replaceChildren(table);
  }

  data.charts.forEach((chart, i) => {
    const section = document.getElementById('chart-' + i);
    const canvas = section.querySelector('canvas');
    chart.series.forEach((series) => {
      series.count = chart.figures ? (series.split === 'train' && data.runs[series.run].train.step.length > 2 ? Infinity : 0) : series.points.length;
    });
    const entry = {chart, details: section.querySelector('details'), numbers: section.querySelector('.scroll'), drawn: null};
    entry.drawn = new Chart(canvas, {type: chart.points ? 'scatter' : 'line', data: {datasets: []}, options: optionsOf(chart)});
    entry.details.addEventListener('toggle', () => entry.details.open && writeNumbers(entry));
    charts.push(entry);
    draw(entry);
  });

  const swatches = () => document.querySelectorAll('.swatch').forEach((swatch) => { swatch.style.background = color(Number(swatch.dataset.run)); });
  document.querySelectorAll('.runs input').forEach((box) => box.addEventListener('change', () => { shown[Number(box.value)] = box.checked; drawAll(); }));
  const listen = (id, event, take) => { const control = document.getElementById(id); if (control) control.addEventListener(event, () => take(control)); };
  listen('smoothing', 'input', (slider) => { settings.smoothing = Number(slider.value); document.getElementById('smoothing-value').textContent = slider.value; drawAll(); });
  listen('log', 'change', (box) => { settings.log = box.checked; drawAll(); });
  listen('axis', 'change', (choice) => { settings.axis = choice.value; drawAll(); });
  const recolor = () => { swatches(); drawAll(); };
  listen('theme', 'click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; recolor(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolor);
  let before;
  addEventListener('beforeprint', () => { before = root.dataset.theme; root.dataset.theme = 'light'; recolor(); charts.forEach((entry) => entry.drawn.resize()); });
  addEventListener('afterprint', () => { if (before) root.dataset.theme = before; else delete root.dataset.theme; recolor(); });
  swatches();

  // `trainrun report --watch`: newer figures in place; where there is a new kind of figure, the whole page again.
  const shapeOf = (all) => JSON.stringify([all.charts, all.runs.map((run) => run.name)]);
  const shape = shapeOf(data);
  async function look() {
    const told = document.getElementById('watched');
    try {
      const answer = await fetch('/data');
      if (!answer.ok) throw new Error(await answer.text());
      const newer = await answer.json();
      if (shapeOf(newer) !== shape) return location.reload();
      data.runs = newer.runs;
      document.getElementById('states').innerHTML = newer.states;  // HTML in which every text is escaped
      told.textContent = `as of ${new Date().toLocaleTimeString()}`;
      drawAll();
    } catch (error) {
      told.textContent = `these figures are no longer brought up to date: ${error.message}`;
    }
    return setTimeout(look, 2000);
  }
  if (data.watched) look();
})();
