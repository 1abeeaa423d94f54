"use strict";
// Plays a run on a canvas: unpacks what analysis/report/playback.py packed. Names are shown as text, never as markup.

const STAGES = [
  ["downloading", "#56b4e9"], ["waiting for others", "#f0e442"], ["exchanging", "#cc79a7"],
  ["training", "#e69f00"], ["outside coverage", "#9aa0a6"], ["uploading", "#0072b2"],
];
const IDLE = "#9aa0a6";
const WHY = {
  committed: "committed: its update counts",
  left_download: "did not commit: it left coverage while it received the model",
  left_training: "did not commit: it left coverage while it trained",
  left_exchange: "did not commit: it left coverage during the exchange with others",
  left_upload: "did not commit: it left coverage before the last byte of its upload",
  deadline: "did not commit: the round's deadline came first",
  stale: "did not commit: the round closed first, and its model was too old for the next",
  rejected: "rejected: its update had values that are not finite",
};
const MARK_S = 4, MOST_MARKED_S = 60; // for so long, in seconds on the screen and of the simulation, an end is marked
const STEP_S = 10; // from one press to the next, where there are no rounds
const TOLD_MS = 150; // as the text and the slider change, the browser lays out the whole page: not at every frame
const still = matchMedia("(prefers-reduced-motion: reduce)");

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const run = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let at = 4 + size;
  const column = {};
  for (const [name, length, bytes] of run.columns) {
    column[name] = bytes === 2 ? new Int16Array(buffer.slice(at, at + 2 * length)) : new Int32Array(buffer.slice(at, at + 4 * length));
    at += bytes * length;
  }
  const points = column.time.length;
  const time = new Float64Array(points), x = new Float32Array(points), y = new Float32Array(points);
  const paths = [], tracks = [], windows = run.vehicles.map(() => []);
  let first = 0, enter = 0, window = 0;
  column.path_vehicle.forEach((vehicle, place) => {
    const last = first + column.path_points[place] - 1;
    for (let i = first, t = 0, u = 0, v = 0; i <= last; i++) {
      t += column.time[i]; u = (u + column.x[i]) << 16 >> 16; v = (v + column.y[i]) << 16 >> 16; // places are 16 bits
      time[i] = run.begin_s + t / run.per_s; x[i] = u * run.step_m; y[i] = v * run.step_m;
    }
    const path = { vehicle, first, last, from: time[first], to: time[last] };
    paths.push(path);
    for (const end = window + column.path_windows[place]; window < end; window++) {
      enter += column.enter[window];
      const from = run.begin_s + enter / run.per_s, to = run.begin_s + (enter + column.exit[window]) / run.per_s;
      const one = { vehicle, rsu: column.rsu[window], path, from, to };
      tracks.push(one);
      windows[vehicle].push(one);
    }
    first = last + 1;
  });
  paths.sort((a, b) => a.from - b.from);
  const taken = run.vehicles.map(() => []);
  for (const [vehicle, rsu, round, outcome, from, to, spent] of run.participations) {
    taken[vehicle].push({ vehicle, rsu, round, outcome, from, to, spent });
  }
  const handedOver = run.vehicles.map(() => []);
  for (const [vehicle, at, from, to, gap, backhaul, stage, policy] of run.handovers) {
    handedOver[vehicle].push({ at, from, to, gap, backhaul, stage, policy });
  }
  const ends = []; // of participations, where they were: once, and not at every frame
  for (const [vehicle, , , outcome, , to] of run.participations) {
    const track = windows[vehicle].find((one) => one.from <= to && to <= one.to + 1e-6);
    if (track) ends.push({ vehicle, outcome, to, ...placeOf({ time, x, y }, track.path, to) });
  }
  const from = paths[0].from, to = paths.reduce((last, one) => Math.max(last, one.to), from);
  return { ...run, time, x, y, paths, tracks, windows, taken, handedOver, ends, from, to };
}

function placeOf(run, path, t) {
  let low = path.first, high = path.last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (run.time[middle] <= t) low = middle; else high = middle;
  }
  const length = run.time[high] - run.time[low], share = length > 0 ? (t - run.time[low]) / length : 0;
  const dx = run.x[high] - run.x[low], dy = run.y[high] - run.y[low];
  return { x: run.x[low] + share * dx, y: run.y[low] + share * dy, speed: length > 0 ? Math.hypot(dx, dy) / length : 0 };
}

function rsuOf(run, part, t) { // which serves it now: that of its last handover, else the one that invited it
  let rsu = part.rsu;
  for (const handover of run.handedOver[part.vehicle]) {
    if (part.from <= handover.at && handover.at <= t && handover.at <= part.to) rsu = handover.to;
  }
  return rsu;
}

function stageOf(run, vehicle, t) {
  for (const part of run.taken[vehicle]) {
    if (part.from <= t && t < part.to) {
      let end = part.from;
      for (const [stage, seconds] of part.spent) {
        end += seconds;
        if (t < end) return { part, stage };
      }
      return { part, stage: part.spent.length ? part.spent[part.spent.length - 1][0] : 0 };
    }
  }
  return null;
}

function extentOf(run) {
  const box = [Infinity, -Infinity, Infinity, -Infinity];
  for (const [, x, y, r] of run.rsus) {
    box[0] = Math.min(box[0], x - r); box[1] = Math.max(box[1], x + r); box[2] = Math.min(box[2], y - r); box[3] = Math.max(box[3], y + r);
  }
  return box;
}

class Player {
  constructor(root, run) {
    this.root = root; this.run = run;
    const film = root.querySelector("script[type='application/json']");
    this.film = new Map(); // frames by vehicle, of few
    if (film) for (const [vehicle, uri, frames] of JSON.parse(film.textContent)) this.film.set(vehicle, { uri, frames });
    this.t = run.from; this.speed = 10; this.playing = false; this.chosen = -1; this.drawn = []; this.marks = [];
    this.view = null; this.idle = run.takes_part ? "not invited" : "in coverage";
    this.map = root.querySelector(".play-map"); this.strip = root.querySelector(".play-strip");
    this.slider = root.querySelector("input[type=range]");
    if (!run.curve) this.strip.style.height = "26px";
    this.slider.min = 0; this.slider.max = 10000; this.slider.value = 0;
    this.says = root.querySelector(".play-says"); this.about = root.querySelector(".play-about");
    this.tip = root.querySelector(".play-tip");
    const on = (name, call) => root.querySelector(`[data-do=${name}]`).addEventListener("click", call);
    this.button = root.querySelector("[data-do=play]");
    on("play", () => this.toggle());
    on("back", () => this.step(-1));
    on("on", () => this.step(1));
    on("closer", () => this.zoom(1.5));
    on("wider", () => this.zoom(1 / 1.5));
    on("whole", () => { this.view = null; this.draw(); });
    root.querySelector("select").addEventListener("change", (event) => { this.speed = Number(event.target.value); });
    this.slider.addEventListener("input", () => this.seek(run.from + (run.to - run.from) * this.slider.value / 10000));
    this.map.addEventListener("keydown", (event) => this.key(event));
    this.map.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event); }, { passive: false });
    this.map.addEventListener("pointerdown", (event) => { this.grabbed = { x: event.clientX, y: event.clientY, moved: 0 }; this.map.setPointerCapture(event.pointerId); });
    this.map.addEventListener("pointermove", (event) => this.moved(event));
    this.map.addEventListener("pointerup", (event) => { if (this.grabbed && this.grabbed.moved < 4) this.click(event); this.grabbed = null; });
    this.map.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.strip.addEventListener("pointerdown", (event) => this.seekStrip(event));
    this.strip.addEventListener("pointermove", (event) => { if (event.buttons) this.seekStrip(event); else this.strip.title = this.told(this.timeAt(event)); });
    const [west, east, south, north] = extentOf(run);
    const tall = () => { this.map.style.height = `${Math.max(220, Math.min(560, 1.06 * this.map.clientWidth * (north - south) / (east - west)))}px`; };
    tall();
    new ResizeObserver(() => { tall(); this.draw(); }).observe(this.map);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.draw();
  }

  toggle() {
    if (this.t >= this.run.to) this.t = this.run.from;
    this.playing = !this.playing;
    this.button.textContent = this.playing ? "Pause" : "Play";
    this.button.setAttribute("aria-pressed", String(this.playing));
    if (!this.playing) { this.draw(); return; }
    if (still.matches) { this.jump(); return; }
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      this.t = Math.min(this.run.to, this.t + this.speed * (now - before) / 1000);
      before = now;
      this.draw(true);
      if (this.t >= this.run.to) this.toggle(); else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  jump() { // whoever asked for no motion sees a picture for each round
    if (!this.playing) return;
    this.step(1);
    if (this.t >= this.run.to) this.toggle(); else setTimeout(() => this.jump(), 1500);
  }

  step(direction) {
    const at = this.run.rounds.map((round) => round[1]);
    if (!at.length) { this.seek(this.t + STEP_S * direction); return; }
    const next = direction > 0 ? at.find((t) => t > this.t + 1e-6) ?? this.run.to : at.filter((t) => t < this.t - 1e-6).pop() ?? this.run.from;
    this.seek(next);
  }

  seek(t) { this.t = Math.max(this.run.from, Math.min(this.run.to, t)); this.draw(); }

  timeAt(event) {
    const box = this.strip.getBoundingClientRect();
    return this.run.from + (this.run.to - this.run.from) * Math.max(0, Math.min(1, (event.clientX - box.left - 44) / Math.max(1, box.width - 52)));
  }

  seekStrip(event) { this.seek(this.timeAt(event)); }

  told(t) { // what the strip shows at a time
    const closed = this.run.rounds.filter((round) => round[1] <= t).length, value = this.run.curve?.points.filter((point) => point[0] <= t).pop();
    return `${t.toFixed(1)} s${this.run.takes_part ? `, ${closed} rounds closed` : ""}${value ? `, ${this.run.curve.label} ${Number(value[1].toPrecision(3))} ${this.run.curve.unit}` : ""}`;
  }

  key(event) {
    const act = {
      " ": () => this.toggle(), ArrowRight: () => this.seek(this.t + (event.shiftKey ? 30 : 1)), ArrowLeft: () => this.seek(this.t - (event.shiftKey ? 30 : 1)),
      ".": () => this.step(1), ",": () => this.step(-1), "+": () => this.zoom(1.3), "=": () => this.zoom(1.3), "-": () => this.zoom(1 / 1.3),
      0: () => { this.view = null; this.draw(); }, Escape: () => { this.chosen = -1; this.tell(); this.draw(); },
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  }

  fit(width, height) {
    if (this.view) return;
    const box = extentOf(this.run);
    this.view = { x: (box[0] + box[1]) / 2, y: (box[2] + box[3]) / 2, scale: 0.96 * Math.min(width / (box[1] - box[0]), height / (box[3] - box[2])) };
  }

  zoom(factor, event) {
    const box = this.map.getBoundingClientRect();
    const px = event ? event.clientX - box.left : box.width / 2, py = event ? event.clientY - box.top : box.height / 2;
    const [x, y] = this.back(px, py);
    this.view.scale *= factor;
    this.view.x = x - (px - box.width / 2) / this.view.scale;
    this.view.y = y + (py - box.height / 2) / this.view.scale;
    this.draw();
  }

  moved(event) {
    if (this.grabbed && event.buttons) {
      const dx = event.clientX - this.grabbed.x, dy = event.clientY - this.grabbed.y;
      this.grabbed = { x: event.clientX, y: event.clientY, moved: this.grabbed.moved + Math.abs(dx) + Math.abs(dy) };
      this.view.x -= dx / this.view.scale; this.view.y += dy / this.view.scale;
      this.draw();
      return;
    }
    const box = this.map.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    const car = this.nearest(px, py), rsu = car ? null : this.rsuAt(px, py);
    const mark = car || rsu ? null : this.marks.find((one) => one.near(px, py));
    this.tip.hidden = !car && !rsu && !mark;
    if (car) this.tip.textContent = `${this.run.vehicles[car.vehicle]}: ${car.doing}, ${(3.6 * car.speed).toFixed(0)} km/h`;
    if (rsu) this.tip.textContent = `RSU ${rsu.name}: ${rsu.covered} in coverage${this.run.takes_part ? `, ${rsu.busy} of them taking part, ${rsu.committed} committed so far` : ""}`;
    if (mark) this.tip.textContent = mark.text;
    if (!this.tip.hidden) { // beside the pointer, and within the map
      this.tip.style.left = `${Math.max(0, Math.min(px + 12, box.width - this.tip.offsetWidth))}px`;
      this.tip.style.top = `${py + 12 + this.tip.offsetHeight > box.height ? py - 8 - this.tip.offsetHeight : py + 12}px`;
    }
  }

  rsuAt(px, py) {
    const place = this.run.rsus.findIndex(([, x, y]) => { const [u, v] = this.forth(x, y); return Math.hypot(u - px, v - py) < 10; });
    if (place < 0) return null;
    const here = this.run.tracks.filter((one) => one.rsu === place && one.from <= this.t && this.t < one.to);
    const parts = this.run.participations.filter((one) => one[1] === place);
    return {
      name: this.run.rsus[place][0], covered: here.length, busy: parts.filter((one) => one[4] <= this.t && this.t < one[5]).length,
      committed: parts.filter((one) => one[3] === "committed" && one[5] <= this.t).length,
    };
  }

  nearest(px, py) {
    let best = null, least = 12;
    for (const car of this.drawn) {
      const off = Math.hypot(car.px - px, car.py - py);
      if (off < least) { least = off; best = car; }
    }
    return best;
  }

  click(event) {
    const box = this.map.getBoundingClientRect();
    this.map.focus();
    this.chosen = this.nearest(event.clientX - box.left, event.clientY - box.top)?.vehicle ?? -1;
    this.tell();
    this.draw();
    if (this.partner) { // the same vehicle in the other run
      this.partner.chosen = this.partner.run.vehicles.indexOf(this.run.vehicles[this.chosen] ?? "");
      this.partner.tell();
      this.partner.draw();
    }
  }

  tell() {
    this.about.replaceChildren();
    this.sees = null;
    if (this.chosen < 0) {
      this.about.append(this.run.takes_part ? "Click a vehicle: its windows, its participations, and why it did not commit." : "Click a vehicle: when it is in coverage.");
      this.filmed("What these see is on this page too:");
      return;
    }
    const line = (tag, text) => { const made = document.createElement(tag); made.textContent = text; this.about.append(made); return made; };
    const s = (t) => `${t.toFixed(1)} s`;
    line("b", this.run.vehicles[this.chosen]);
    if (this.film.has(this.chosen)) this.screen();
    else this.filmed("No frames of this vehicle are on this page, but of these:");
    const list = document.createElement("ul");
    const items = this.run.windows[this.chosen].map((one) => [one.from, `${s(one.from)} to ${s(one.to)}: in coverage of RSU ${this.run.rsus[one.rsu][0]}, ${(one.to - one.from).toFixed(1)} s`, one.from]);
    for (const part of this.run.taken[this.chosen]) {
      const spent = part.spent.map(([stage, seconds]) => `${STAGES[stage][0]} ${seconds.toFixed(1)} s`).join(", ");
      items.push([part.from, `${s(part.from)} to ${s(part.to)}: invited in round ${part.round} by RSU ${this.run.rsus[part.rsu][0]}; ${WHY[part.outcome] ?? part.outcome} (${spent})`, part.from]);
    }
    for (const one of this.run.handedOver[this.chosen]) {
      const name = (rsu) => this.run.rsus[rsu][0];
      const waited = one.backhaul > 0 ? `, ${one.backhaul.toFixed(2)} s for the backhaul` : "";
      const did = one.policy === "drop" ? "dropped at the change" : "handed over";
      items.push([one.at, `${s(one.at)}: ${did} from RSU ${name(one.from)} to ${name(one.to)} (${one.stage}; gap ${one.gap.toFixed(1)} s${waited}; ${one.policy})`, one.at]);
    }
    if (this.run.takes_part && !this.run.taken[this.chosen].length) items.push([Infinity, "It was never invited.", null]);
    items.sort((a, b) => a[0] - b[0]);
    for (const [, text, t] of items) {
      const item = document.createElement("li");
      if (t === null) item.textContent = text;
      else {
        const jump = document.createElement("button");
        jump.type = "button"; jump.textContent = text; jump.addEventListener("click", () => this.seek(t));
        item.append(jump);
      }
      list.append(item);
    }
    this.about.append(list);
  }

  filmed(words) { // who has frames
    if (!this.film.size) return;
    const list = document.createElement("details"), head = document.createElement("summary");
    head.textContent = `${words.slice(0, -1)} (${this.film.size} of ${this.run.vehicles.length})`;
    list.append(head);
    for (const [vehicle, { frames }] of this.film) {
      const one = document.createElement("button");
      one.type = "button"; one.textContent = this.run.vehicles[vehicle];
      one.addEventListener("click", () => { this.chosen = vehicle; this.tell(); this.seek(frames[0][0]); });
      list.append(one, " ");
    }
    this.about.append(list);
  }

  screen() { // what the chosen vehicle sees now, sharp and blurred
    const { uri, frames } = this.film.get(this.chosen), made = document.createElement("figure");
    made.className = "play-sees"; made.setAttribute("aria-live", "off");
    const pictures = ["sharp", "blurred"].map((name, row) => { // one frame of the picture with all of them
      const frame = document.createElement("div"), picture = document.createElement("img");
      picture.src = uri; picture.alt = `What it sees, ${name}`; picture.title = name;
      picture.style.width = `${100 * frames.length}%`; picture.style.top = `${-100 * row}%`;
      frame.append(picture);
      made.append(frame);
      return picture;
    });
    const words = document.createElement("figcaption");
    made.append(words);
    this.about.append(made);
    this.sees = { frames, pictures, words, place: null };
    this.look();
  }

  look() { // the last frame since it came into coverage, or else the first one
    if (!this.sees) return;
    const { frames, pictures, words } = this.sees;
    const here = this.run.windows[this.chosen].filter((one) => one.from <= this.t && this.t <= one.to);
    const from = Math.min(...here.map((one) => one.from)), to = Math.max(...here.map((one) => one.to));
    let place = frames.findIndex(([time]) => from <= time && time <= to);
    while (place >= 0 && place + 1 < frames.length && frames[place + 1][0] <= this.t) place++;
    if (place === this.sees.place) return;
    this.sees.place = place;
    for (const picture of pictures) { picture.hidden = place < 0; picture.style.left = `${-100 * place}%`; }
    if (place < 0) { words.textContent = `It sees nothing now: its ${frames.length} frames are from ${frames[0][0]} s to ${frames[frames.length - 1][0]} s, in coverage.`; return; }
    const [time, speed, kernel, target] = frames[place];
    words.textContent = `${target}\n${time.toFixed(1)} s, ${speed.toFixed(0)} km/h\nleft sharp, right ${kernel > 1 ? `blurred by ${kernel.toFixed(1)} px` : "as trained on: too slow to blur"}`;
  }

  forth(x, y) { return [this.width / 2 + (x - this.view.x) * this.view.scale, this.height / 2 - (y - this.view.y) * this.view.scale]; }
  back(px, py) { return [this.view.x + (px - this.width / 2) / this.view.scale, this.view.y - (py - this.height / 2) / this.view.scale]; }

  sized(canvas) {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return [context, width, height];
  }

  draw(playing = false) {
    if (this.other) { this.other.t = Math.max(this.other.run.from, Math.min(this.other.run.to, this.t)); this.other.speed = this.speed; this.other.view = this.view; this.other.draw(playing); }
    const style = getComputedStyle(this.root), colour = (name) => style.getPropertyValue(name).trim();
    const ink = colour("--ink"), quiet = colour("--quiet"), line = colour("--line"), page = colour("--page"), accent = colour("--accent");
    const [pen, width, height] = this.sized(this.map);
    if (!width) return;
    this.width = width; this.height = height;
    this.fit(width, height);
    const { run, t } = this;
    pen.drawImage(this.ground(ink, quiet, line, accent), 0, 0, width, height);
    const seen = new Set(), counts = new Array(STAGES.length).fill(0);
    let idle = 0;
    this.drawn = [];
    for (const path of run.paths) {
      if (path.from > t) break;
      if (path.to <= t || seen.has(path.vehicle)) continue;
      seen.add(path.vehicle);
      const at = placeOf(run, path, t), doing = stageOf(run, path.vehicle, t), [px, py] = this.forth(at.x, at.y);
      if (doing) counts[doing.stage]++; else idle++;
      if (px < -10 || py < -10 || px > width + 10 || py > height + 10) continue;
      this.drawn.push({ vehicle: path.vehicle, px, py, speed: at.speed, stage: doing ? doing.stage : -1, part: doing?.part, doing: doing ? STAGES[doing.stage][0] : this.idle });
    }
    for (const car of this.drawn) { // who sends or receives has a line to its RSU
      if (car.stage !== 0 && car.stage !== 5) continue;
      const [, x, y] = run.rsus[rsuOf(run, car.part, t)], [u, v] = this.forth(x, y);
      pen.strokeStyle = STAGES[car.stage][1]; pen.lineWidth = 1.5; pen.setLineDash(car.stage ? [] : [4, 3]);
      pen.beginPath(); pen.moveTo(car.px, car.py); pen.lineTo(u, v); pen.stroke(); pen.setLineDash([]);
    }
    this.drawn.sort((a, b) => a.stage - b.stage);
    for (const car of this.drawn) {
      this.symbol(pen, car.px, car.py, car.stage, page);
      if (this.film.has(car.vehicle)) { pen.strokeStyle = ink; pen.lineWidth = 1; pen.beginPath(); pen.arc(car.px, car.py, 8, 0, 7); pen.stroke(); }
    }
    this.ends(pen, ink);
    const chosen = this.drawn.find((car) => car.vehicle === this.chosen);
    if (chosen) { pen.strokeStyle = ink; pen.lineWidth = 2; pen.beginPath(); pen.arc(chosen.px, chosen.py, 11, 0, 7); pen.stroke(); }
    this.look();
    this.drawStrip(ink, quiet, line, accent);
    const now = performance.now();
    if (playing && now < this.told_ms + TOLD_MS) return;
    this.told_ms = now;
    const closed = run.rounds.filter((round) => round[1] <= t), committed = closed.reduce((sum, round) => sum + round[3], 0);
    const words = [`${t.toFixed(1)} s`];
    if (run.rounds.length) words.push(`${closed.length} of ${run.rounds.length} rounds closed, ${committed} committed`);
    words.push([`${idle} ${this.idle}`, ...STAGES.map(([name], stage) => (counts[stage] ? `${counts[stage]} ${name}` : "")).filter(Boolean)].join(", "));
    this.says.textContent = words.join(" · ");
    this.slider.value = Math.round(10000 * (t - run.from) / Math.max(1e-9, run.to - run.from));
    this.slider.setAttribute("aria-valuetext", words[0]);
  }

  ground(ink, quiet, line, accent) { // what stands still, painted anew only where the view has changed
    const { run, view } = this, shown = [view.x, view.y, view.scale, this.map.width, this.map.height, ink, line].join();
    if (this.shown === shown) return this.still;
    this.shown = shown;
    this.still ??= document.createElement("canvas");
    this.still.width = this.map.width; this.still.height = this.map.height;
    const pen = this.still.getContext("2d"), ratio = this.map.width / this.width;
    pen.scale(ratio, ratio);
    pen.lineWidth = Math.max(1, Math.min(6, 3 * view.scale));
    pen.strokeStyle = line; pen.lineJoin = "round";
    pen.beginPath();
    for (const lane of run.lanes) for (let i = 0; i < lane.length; i += 2) { const [u, v] = this.forth(lane[i], lane[i + 1]); if (i) pen.lineTo(u, v); else pen.moveTo(u, v); }
    pen.stroke();
    for (const [name, x, y, range] of run.rsus) {
      const [u, v] = this.forth(x, y);
      pen.beginPath(); pen.arc(u, v, range * view.scale, 0, 7);
      pen.fillStyle = accent; pen.globalAlpha = 0.07; pen.fill(); pen.globalAlpha = 0.5; pen.lineWidth = 1; pen.strokeStyle = accent; pen.stroke(); pen.globalAlpha = 1;
      pen.fillStyle = ink; pen.beginPath(); pen.moveTo(u, v - 6); pen.lineTo(u + 5, v + 4); pen.lineTo(u - 5, v + 4); pen.fill();
      if (range * view.scale > 45) { pen.font = "11px system-ui, sans-serif"; pen.fillStyle = quiet; pen.textAlign = "center"; pen.fillText(name, u, v - range * view.scale + 15); }
    }
    return this.still;
  }

  symbol(pen, x, y, stage, page) {
    const size = stage < 0 ? 3 : 5.5;
    pen.fillStyle = stage < 0 ? IDLE : STAGES[stage][1]; pen.strokeStyle = page; pen.lineWidth = 1;
    pen.beginPath();
    if (stage === 0) { pen.moveTo(x, y + size); pen.lineTo(x + size, y - size); pen.lineTo(x - size, y - size); pen.closePath(); }
    else if (stage === 5) { pen.moveTo(x, y - size); pen.lineTo(x + size, y + size); pen.lineTo(x - size, y + size); pen.closePath(); }
    else if (stage === 3) pen.rect(x - 4.5, y - 4.5, 9, 9);
    else if (stage === 2) { pen.moveTo(x, y - size); pen.lineTo(x + size, y); pen.lineTo(x, y + size); pen.lineTo(x - size, y); pen.closePath(); }
    else if (stage === 1) { pen.rect(x - 2, y - 5, 4, 10); }
    else pen.arc(x, y, size, 0, 7);
    pen.fill(); pen.stroke();
  }

  ends(pen, ink) { // a tick where an update was committed, a cross where a participation was lost
    const for_s = Math.min(MARK_S * this.speed, MOST_MARKED_S);
    this.marks = []; // what can be pointed at
    for (const { vehicle, outcome, to, x: east, y: north } of this.run.ends) {
      if (to > this.t || to < this.t - for_s) continue;
      const [x, y] = this.forth(east, north);
      this.marks.push({ near: (px, py) => Math.hypot(x - px, y - py) < 10, text: `${this.run.vehicles[vehicle]}: ${WHY[outcome] ?? outcome}` });
      pen.globalAlpha = 1 - (this.t - to) / for_s; pen.lineWidth = 2.5;
      pen.beginPath();
      if (outcome === "committed") { pen.strokeStyle = "#009e73"; pen.moveTo(x - 6, y); pen.lineTo(x - 1, y + 5); pen.lineTo(x + 7, y - 6); }
      else { pen.strokeStyle = "#d55e00"; pen.moveTo(x - 5, y - 5); pen.lineTo(x + 5, y + 5); pen.moveTo(x + 5, y - 5); pen.lineTo(x - 5, y + 5); }
      pen.stroke();
    }
    pen.strokeStyle = "#cc79a7";
    for (const [vehicle, at, from, to, gap, , stage, policy] of this.run.handovers) { // from the old RSU to the new one
      if (policy === "drop" || at + gap > this.t || at + gap < this.t - for_s) continue;
      const [u, v] = this.forth(this.run.rsus[from][1], this.run.rsus[from][2]), [x, y] = this.forth(this.run.rsus[to][1], this.run.rsus[to][2]);
      pen.globalAlpha = 1 - (this.t - at - gap) / for_s; pen.lineWidth = 2;
      const [p, q] = [(u + x) / 2, Math.min(v, y) - 24];
      pen.beginPath(); pen.moveTo(u, v); pen.quadraticCurveTo(p, q, x, y); pen.stroke();
      const along = (s) => [(1 - s) ** 2 * u + 2 * s * (1 - s) * p + s * s * x, (1 - s) ** 2 * v + 2 * s * (1 - s) * q + s * s * y];
      this.marks.push({
        near: (px, py) => [...Array(21).keys()].some((i) => { const [a, b] = along(i / 20); return Math.hypot(a - px, b - py) < 10; }),
        text: `${this.run.vehicles[vehicle]}: handed over from RSU ${this.run.rsus[from][0]} to ${this.run.rsus[to][0]} (${stage}; ${policy})`,
      });
      const car = this.drawn.find((one) => one.vehicle === vehicle);
      if (car) { pen.beginPath(); pen.arc(car.px, car.py, 9, 0, 7); pen.stroke(); }
    }
    pen.globalAlpha = 1;
  }

  drawStrip(ink, quiet, line, accent) {
    const [pen, width, height] = this.sized(this.strip), { run } = this;
    const left = 44, across = (t) => left + (width - left - 8) * (t - run.from) / Math.max(1e-9, run.to - run.from);
    pen.strokeStyle = line; pen.lineWidth = 1;
    pen.beginPath();
    for (const [, close] of run.rounds) { pen.moveTo(across(close), height - 6); pen.lineTo(across(close), height); }
    pen.moveTo(left, height - 0.5); pen.lineTo(width - 8, height - 0.5);
    pen.stroke();
    const shown = [run.curve, run.beside].filter((curve) => curve && curve.points.length > 1);
    const values = shown.flatMap((curve) => curve.points.map((point) => point[1])), low = Math.min(...values), high = Math.max(...values);
    const up = (value) => height - 12 - (height - 30) * (high > low ? (value - low) / (high - low) : 0.5);
    const short = (value) => Number(value.toPrecision(3)).toString();
    const now = shown.map((curve, place) => {
      pen.strokeStyle = pen.fillStyle = place ? "#d55e00" : accent; pen.lineWidth = 1.8; pen.setLineDash(place ? [5, 3] : []);
      pen.beginPath();
      curve.points.forEach(([time, value], i) => { if (i) pen.lineTo(across(time), up(value)); else pen.moveTo(across(time), up(value)); });
      pen.stroke(); pen.setLineDash([]);
      const last = curve.points.filter((point) => point[0] <= this.t).pop() ?? curve.points[0];
      pen.beginPath(); pen.arc(across(Math.min(this.t, curve.points[curve.points.length - 1][0])), up(last[1]), 3.5, 0, 7); pen.fill();
      return short(last[1]);
    });
    if (shown.length) {
      pen.fillStyle = quiet; pen.font = "11px system-ui, sans-serif"; pen.textAlign = "right";
      pen.fillText(short(high), left - 6, 22); pen.fillText(short(low), left - 6, height - 10);
      pen.textAlign = "left";
      const names = shown.length > 1 ? `${now[0]} left, ${now[1]} right (dashed)` : now[0];
      pen.fillText(`${shown[0].label}${shown[0].unit ? ` (${shown[0].unit})` : ""}: ${names}`, left + 4, 10);
    }
    pen.strokeStyle = ink; pen.lineWidth = 1; pen.beginPath(); pen.moveTo(across(this.t), run.curve ? 12 : 2); pen.lineTo(across(this.t), height); pen.stroke();
  }
}

const roots = [...document.querySelectorAll(".play")];
Promise.all(roots.map((root) => unpacked(root.querySelector("script").textContent.trim()))).then((runs) => {
  roots.forEach((root) => { root.hidden = false; });
  const players = roots.map((root, place) => { root.player = new Player(root, runs[place]); root.player.tell(); return root.player; });
  if (players.length > 1) { // the first leads, and shows both curves
    const [first, second] = players;
    first.other = second;
    first.partner = second;
    second.partner = first;
    first.run.to = Math.max(first.run.to, second.run.to);
    first.run.beside = second.run.curve;
    first.draw();
  }
});
