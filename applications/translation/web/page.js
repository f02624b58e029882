// What a person sees of a translator in the browser: every `div.live-translator` of a page.
//
// `data-model` is the address of its `model.js`, and `data-examples` texts to try, between bars.
"use strict";

(() => {
const {Translator, SPACE} = self.kerasAttention;
const WORDS = {
  en: {
    input: "Input", output: "Output", placeholder: "Type here", loading: "The model is being loaded …",
    failed: "The model could not be loaded.", temperature: "Temperature τ", play: "Play", pause: "Pause",
    step: "Step", reset: "Reset", nothing: "(nothing)", space: "space", map: "Where each output looks",
    hint: "Click an input word: attention can no longer read it. Click an output to see its step.",
    unknown: (words) => `Unknown to the model: ${words.join(", ")}.`,
    mask: (word) => `${word}: click to hide it from attention`,
    unmask: (word) => `${word}: hidden from attention; click to show it again`,
    energies: (most, word) => `the state compared with every input: most for “${word}”, ${most}`,
    weights: (list) => `as weights that sum to 1: ${list}`,
    hidden: "everything is hidden: no weight is left",
    context: "the mean of the encoder's states, with these weights",
    state: "the next state of the decoder", layers: "the next layers of the decoder",
    words: (list) => `the next output: ${list}`, end: "end",
  },
  zh: {
    input: "输入", output: "输出", placeholder: "在此输入", loading: "正在加载模型……",
    failed: "模型无法加载。", temperature: "温度 τ", play: "播放", pause: "暂停",
    step: "单步", reset: "还原", nothing: "（空）", space: "空格", map: "每个输出看哪里",
    hint: "点一个输入词：注意力就不能再读它。点一个输出：看它那一步。",
    unknown: (words) => `模型不认识：${words.join("、")}。`,
    mask: (word) => `${word}：点击后注意力读不到它`,
    unmask: (word) => `${word}：已对注意力隐藏；再点一次恢复`,
    energies: (most, word) => `状态与每个输入比较：“${word}”得分最高，${most}`,
    weights: (list) => `变成和为 1 的权重：${list}`,
    hidden: "全都隐藏了：没有权重可分",
    context: "按这些权重求编码器状态的平均",
    state: "解码器的下一个状态", layers: "解码器后面的层",
    words: (list) => `下一个输出：${list}`, end: "结束",
  },
};
const T = "<i>t</i>", S = "<i>s</i>", BEFORE = "<i>t</i>−1";
const EQUATIONS = {
  rnnsearch: [
    `<i>e</i><sub>${T}${S}</sub> = <i>v</i><sup>⊤</sup> tanh(<i>W s</i><sub>${BEFORE}</sub> + <i>U h</i><sub>${S}</sub>)`,
    `<i>a</i><sub>${T}${S}</sub> = softmax<sub>${S}</sub>(<i>e</i><sub>${T}${S}</sub> / <i>τ</i>)`,
    `<i>c</i><sub>${T}</sub> = ∑<sub>${S}</sub> <i>a</i><sub>${T}${S}</sub> <i>h</i><sub>${S}</sub>`,
    `<i>s</i><sub>${T}</sub> = GRU([<i>y</i><sub>${BEFORE}</sub>; <i>c</i><sub>${T}</sub>], <i>s</i><sub>${BEFORE}</sub>)`,
    `<i>p</i>(<i>y</i><sub>${T}</sub>) = softmax(<i>W</i><sub>o</sub> maxout(<i>s</i><sub>${BEFORE}</sub>, <i>y</i><sub>${BEFORE}</sub>, <i>c</i><sub>${T}</sub>))`,
  ],
  transformer: [
    `<i>e</i><sub>${T}${S}</sub> = <i>q</i><sub>${T}</sub><sup>⊤</sup> <i>k</i><sub>${S}</sub> / √<i>d</i>`,
    `<i>a</i><sub>${T}${S}</sub> = softmax<sub>${S}</sub>(<i>e</i><sub>${T}${S}</sub> / <i>τ</i>)`,
    `<i>c</i><sub>${T}</sub> = ∑<sub>${S}</sub> <i>a</i><sub>${T}${S}</sub> <i>v</i><sub>${S}</sub>`,
    `<i>x</i><sub>${T}</sub> = layers(<i>y</i><sub>1</sub> … <i>y</i><sub>${BEFORE}</sub>, <i>c</i><sub>${T}</sub>)`,
    `<i>p</i>(<i>y</i><sub>${T}</sub>) = softmax(<i>W</i><sub>o</sub> <i>x</i><sub>${T}</sub>)`,
  ],
};
const STAGES = 5;
const SLOW = 800, FAST = 200;  // milliseconds a line of the equation, at the first step and later
const PAUSE = 300, SLOW_START = 100;  // milliseconds
const TURN = 25;  // milliseconds of work before the browser may draw
const percent = (weight) => `${(100 * weight).toFixed(weight >= 0.9995 || weight < 0.0005 ? 0 : 1)} %`;

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

// Tokens as whole words: letters that follow each other without a space are one.
function wordsOf(tokens) {
  const words = [], wordOf = [], arePieces = tokens.some((token) => token.includes(SPACE));
  const spells = (letter) => letter !== undefined && /[\p{L}\p{M}'’]/u.test(letter)
    && !/[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}]/u.test(letter);
  for (const token of tokens) {
    const before = arePieces ? words.at(-1) ?? "" : "";
    if (before && ((spells([...before].at(-1)) && spells([...token][0])) || before === SPACE)) {
      words[words.length - 1] += token;
    } else words.push(token);
    wordOf.push(words.length - 1);
  }
  return {words: words.map((word) => word.replaceAll(SPACE, "")), wordOf};
}

class Page {
  constructor(place, translator, words, examples) {
    Object.assign(this, {place, translator, words});
    this.temperature = 1;
    this.masked = new Set();  // words of the input
    this.turn = 0;
    this.build(examples.length ? examples : [translator.example].filter(Boolean));
    this.change(this.input.value);
  }

  build(examples) {
    const {words} = this, id = `live-${Math.random().toString(36).slice(2)}`;
    this.input = el("textarea", {id: `${id}i`, rows: 1, placeholder: words.placeholder, dir: "auto",
      spellcheck: "false", autocomplete: "off", oninput: () => this.change(this.input.value)});
    this.input.value = examples[0] ?? "";
    this.output = el("output", {for: `${id}i`, class: "lt-output", dir: "auto", "aria-live": "polite"});
    this.note = el("p", {class: "lt-note"});
    this.map = el("div", {class: "lt-map"});
    this.slider = el("input", {id: `${id}t`, type: "range", min: -1, max: 1, step: 0.05, value: 0,
      oninput: () => this.heat(10 ** this.slider.value)});
    this.shown = el("span", {class: "lt-number"}, "1.00");
    this.playing = el("button", {type: "button", class: "lt-main", onclick: () => this.play()}, words.play);
    this.reset = el("button", {type: "button", onclick: () => this.back()}, words.reset);
    this.lines = EQUATIONS[this.translator.kind].map((equation) => {
      const math = el("span", {class: "lt-math"});
      math.innerHTML = equation;
      return el("li", {}, math, el("span", {class: "lt-said"}));
    });
    this.place.replaceChildren(
      el("div", {class: "lt-row"},
        el("div", {class: "lt-field"}, el("label", {for: `${id}i`}, words.input), this.input,
          el("div", {class: "lt-examples"}, ...(examples.length < 2 ? [] : examples.map((text) =>
            el("button", {type: "button", onclick: () => { this.input.value = text; this.change(text); }}, text))))),
        el("div", {class: "lt-field"}, el("span", {class: "lt-label"}, words.output), this.output, this.note,
          el("div", {class: "lt-controls"}, this.playing,
            el("button", {type: "button", onclick: () => { this.pause(); this.forward(); }}, words.step),
            el("span", {class: "lt-slider"}, el("label", {for: `${id}t`}, words.temperature), this.slider, this.shown),
            this.reset))),
      el("div", {class: "lt-row lt-below"},
        el("div", {class: "lt-field"}, this.map, el("p", {class: "lt-note"}, words.hint)),
        el("div", {class: "lt-field"}, el("ol", {class: "lt-equation"}, ...this.lines))));
  }

  // ---- What changes the translation.

  change(text) {
    this.masked.clear();
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight + 2}px`;
    this.text = text;
    this.translate();
  }

  heat(temperature) {
    this.temperature = temperature;
    this.shown.textContent = temperature.toFixed(2);
    this.translate();
  }

  mask(word) {
    if (!this.masked.delete(word)) this.masked.add(word);
    this.translate();
  }

  back() {
    this.masked.clear();
    this.slider.value = 0;
    this.heat(1);
  }

  // Write the translation anew; a long one is shown as it grows, and a newer text ends it.
  async translate() {
    const turn = ++this.turn, {words, wordOf} = wordsOf(this.translator.source.encode(this.text).tokens);
    const masked = wordOf.map((word) => this.masked.has(word));
    const writing = this.translator.write(this.text, {temperature: this.temperature, masked});
    this.pause();
    this.columns = {words, wordOf};
    this.reset.hidden = !this.masked.size && this.temperature === 1;
    if (this.isSlow) {  // a large network waits until nobody types
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      if (turn !== this.turn) return;
    }
    const begun = performance.now();
    for (let started = begun, isFirst = true; ; isFirst = false) {
      const {value, done} = writing.next();
      if (isFirst) this.isSlow = performance.now() - begun > SLOW_START;
      if (value) this.result = value;
      if (done) break;
      if (performance.now() - started < TURN) continue;
      this.show(false);
      await new Promise((resolve) => setTimeout(resolve));
      if (turn !== this.turn) return;
      started = performance.now();
    }
    this.show(true);
  }

  show(isWhole) {
    const {result, words, columns} = this;
    this.output.textContent = result.text || (isWhole && this.text.trim() ? words.nothing : "");
    const unknown = new Set(columns.wordOf.filter((_, n) => result.unknown[n]));
    this.note.textContent = unknown.size && isWhole ? words.unknown([...unknown].map((n) => columns.words[n])) : "";
    this.rows = wordsOf(result.tokens);
    const first = result.tokens.findIndex((token) => token !== SPACE);
    this.at = {step: Math.max(0, first), stage: STAGES};
    this.limit = Infinity;  // the step until which rows are shown
    this.place.toggleAttribute("data-busy", !isWhole);
    this.draw();
  }

  // ---- Step by step.

  play() {
    if (this.timer) return this.pause();
    this.playing.textContent = this.words.pause;
    const next = () => {
      if (!this.forward()) return this.pause();
      this.timer = setTimeout(next, this.at.step ? FAST : SLOW);
    };
    next();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.playing.textContent = this.words.play;
  }

  // Light the next line of the equation; false at the end.
  forward() {
    const count = this.result.tokens.length;
    if (!count) return false;
    if (this.limit === Infinity) this.at = {step: 0, stage: 0};
    else if (this.at.stage + 1 < STAGES) this.at = {...this.at, stage: this.at.stage + 1};
    else if (this.at.step + 1 < count) this.at = {step: this.at.step + 1, stage: 0};
    else {
      this.look(this.at.step);
      return false;
    }
    this.limit = this.at.step;
    this.draw();
    return true;
  }

  look(step) {
    this.at = {step, stage: STAGES};
    this.limit = Infinity;
    this.draw();
  }

  // ---- What is drawn.

  // A word is looked at by as much as all its pieces are.
  ofWords(weights) {
    const found = this.columns.words.map(() => 0);
    weights.forEach((weight, n) => { found[this.columns.wordOf[n]] += weight; });
    return found;
  }

  energiesOfWords(energies) {
    const {words, wordOf} = this.columns;
    return words.map((_, n) => Math.max(...energies.filter((_, piece) => wordOf[piece] === n)));
  }

  draw() {
    const {result, columns, rows, at, words} = this, focused = document.activeElement?.dataset?.lt;
    const head = columns.words.map((word, n) => {
      const isMasked = this.masked.has(n), isUnknown = columns.wordOf.some((w, k) => w === n && result.unknown[k]);
      return el("th", {scope: "col"}, el("button", {type: "button", dir: "auto", "data-lt": `c${n}`,
        class: isUnknown ? "lt-unknown" : "", "aria-pressed": String(isMasked),
        title: (isMasked ? words.unmask : words.mask)(word || words.space), onclick: () => this.mask(n)}, word || "␣"));
    });
    const body = rows.words.map((word, row) => {
      const all = rows.wordOf.flatMap((each, step) => (each === row ? [step] : []));
      const steps = all.filter((step) => step <= this.limit), current = all.includes(at.step);
      // A word looks as its pieces do in the mean; the one in work as the piece does, which shows
      // its energies first.
      const own = result.steps[at.step], raw = current && at.stage === 0;
      const done = raw ? [] : current ? [at.step] : steps;
      const weights = done.map((step) => this.ofWords(result.steps[step].weights));
      const means = columns.words.map((_, n) =>
        weights.reduce((sum, each) => sum + each[n], 0) / Math.max(1, done.length));
      const energies = raw ? this.energiesOfWords(own.energies) : [];
      const label = steps.length && (!current || at.stage >= STAGES - 1) ? word : "…";
      const first = all.find((step) => result.tokens[step] !== SPACE) ?? all[0];
      return el("tr", {class: `${steps.length ? "" : "lt-later"} ${current ? "lt-current" : ""}`},
        el("th", {scope: "row"}, el("button", {type: "button", dir: "auto", "data-lt": `r${row}`,
          "aria-pressed": String(current), onclick: () => { this.pause(); this.look(first); }}, label || "␣")),
        ...means.map((weight, n) => {
          const cell = el("td", {title: `${word} → ${columns.words[n]}: ${percent(weight)}`,
            class: this.masked.has(n) ? "lt-masked" : "", onclick: () => { this.pause(); this.look(first); }});
          cell.style.setProperty("--weight", weight.toFixed(3));
          if (current && !this.masked.has(n)) {
            cell.textContent = raw ? energies[n].toFixed(1) : (100 * weight).toFixed(0);
          }
          if (weight > 0.5) cell.classList.add("lt-strong");
          return cell;
        }));
    });
    const isLong = columns.words.some((word) => [...word].length > 4);
    this.map.replaceChildren(el("table", {class: `lt-table ${isLong ? "lt-long" : ""}`},
      el("caption", {}, words.map),
      el("thead", {}, el("tr", {}, el("td"), ...head)), el("tbody", {}, ...body)));
    if (focused) this.map.querySelector(`[data-lt="${focused}"]`)?.focus({preventScroll: true});
    this.say();
  }

  // Say of each line of the equation what it is at this step.
  say() {
    const {result, columns, at, words} = this, step = result.steps[at.step];
    const named = (token) => token === "</s>" ? words.end : token.replaceAll(SPACE, "") || words.space;
    const said = Array(STAGES).fill("");
    if (step && result.tokens.length) {
      const weights = this.ofWords(step.weights), energies = this.energiesOfWords(step.energies);
      const ranked = (values) => [...values.keys()].filter((n) => !this.masked.has(n))
        .sort((a, b) => values[b] - values[a]);
      const [most] = ranked(energies), name = (n) => columns.words[n] || words.space;
      const shares = ranked(weights).slice(0, 2).map((n) => `“${name(n)}” ${percent(weights[n])}`);
      said[0] = most === undefined ? words.hidden : words.energies(energies[most].toFixed(2), name(most));
      said[1] = most === undefined ? words.hidden : words.weights(shares.join(", "));
      said[2] = words.context;
      said[3] = this.translator.kind === "rnnsearch" ? words.state : words.layers;
      said[4] = words.words(step.best.map(({word, probability}) =>
        `“${named(word)}” ${percent(probability)}`).join(", "));
    }
    this.lines.forEach((line, n) => {
      line.classList.toggle("lt-lit", n === at.stage);
      line.classList.toggle("lt-dim", n > at.stage);
      line.lastChild.textContent = said[n];
    });
  }
}

// ---- Every place for a translator on the page, loaded when it comes near the window.

const loaded = new Map();

function load(address) {
  if (!loaded.has(address)) {
    loaded.set(address, new Promise((resolve, reject) => {
      const script = el("script", {src: address});
      script.onload = () => {
        script.remove();
        resolve(new Translator(self.kerasAttentionModels.pop()));
      };
      script.onerror = reject;
      document.head.append(script);
    }));
  }
  return loaded.get(address);
}

async function start(place) {
  const words = WORDS[document.documentElement.lang.startsWith("zh") ? "zh" : "en"];
  const examples = (place.dataset.examples ?? "").split("|").filter(Boolean);
  place.replaceChildren(el("p", {class: "lt-note", role: "status"}, words.loading));
  await new Promise((resolve) => setTimeout(resolve, 50));  // the browser draws this
  try {
    const translator = await load(place.dataset.model);
    place.translatorPage = new Page(place, translator, words, examples);
  } catch (error) {
    place.replaceChildren(el("p", {class: "lt-note", role: "alert"}, words.failed));
    throw error;
  }
}

const near = new IntersectionObserver((entries) => {
  for (const {isIntersecting, target} of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    start(target);
  }
}, {rootMargin: "300px"});
document.querySelectorAll(".live-translator").forEach((place) => near.observe(place));
})();
