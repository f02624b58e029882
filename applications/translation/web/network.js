// The translator in plain JavaScript: text to ids, the network, greedy search, ids to text.
//
// `model.js` hands over the settings, the vocabularies and the weights that `export --format web`
// has written. Vectors are Float64Array; a matrix has a row for each of its inputs.
"use strict";

(() => {
const PAD = 0, UNKNOWN = 1, START = 2, END = 3;
const SPACE = "\u2581";  // how pieces write the space before them
const SPARE_TOKENS = 10;  // as `keras_attention.decoding` has them
const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

// ---- Text.

// SentencePiece's rules of normalization: a trie of strings of bytes, and what each becomes.
class Rules {
  constructor(base64) {
    const bytes = bytesOf(base64), view = new DataView(bytes.buffer);
    const size = bytes.length ? view.getUint32(0, true) : 0;
    this.units = Uint32Array.from({length: size / 4}, (_, n) => view.getUint32(4 + 4 * n, true));
    this.texts = bytes.subarray(4 + size);
    this.encoder = new TextEncoder();
    this.decoder = new TextDecoder();
  }

  // The normal form of what a text in bytes has at a place, and how many bytes that is.
  at(bytes, place) {
    const units = this.units, offset = (unit) => (unit >>> 10) << ((unit & 512) >>> 6);
    let found = null, length = 0;
    if (units.length) {
      let node = offset(units[0]);
      for (let n = place; n < bytes.length; n++) {
        node ^= bytes[n];
        const unit = units[node];
        if (unit === undefined || (unit & 0x800000ff) !== bytes[n]) break;
        node ^= offset(unit);
        if (unit & 256) {
          found = units[node] & 0x7fffffff;
          length = n + 1 - place;
        }
      }
    }
    if (found !== null) {
      return [this.decoder.decode(this.texts.subarray(found, this.texts.indexOf(0, found))), length];
    }
    const first = bytes[place], size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    return [this.decoder.decode(bytes.subarray(place, place + size)), size];
  }
}

class Pieces {
  constructor(described) {
    Object.assign(this, described);
    this.rules = new Rules(described.rules ?? "");  // of the target there are none
    this.known = new Map(described.pieces.map(([id, piece, score]) => [piece, {id, score}]));
    this.longest = Math.max(1, ...described.pieces.map(([, piece]) => [...piece].length));
    this.unknownScore = Math.fround(Math.min(...described.pieces.map(([, , score]) => score)) - 10);
    this.ownIds = new Map(this.vocabulary.slice(END + 1).map((piece, n) => [piece, n + END + 1]));
  }

  encode(line) {
    let text = line.normalize("NFC");
    const found = [], tag = this.tag && text.match(new RegExp(`^${this.tag}`))?.[0];
    if (tag) {
      found.push({text: tag, id: UNKNOWN});
      text = text.slice(tag.length);
    }
    const letters = [...this.normalized(text)];
    found.push(...(this.model === "bpe" ? this.merged(letters) : this.likeliest(letters)));
    const id = (piece) => this.hasOwnIds ? this.ownIds.get(piece.text) ?? UNKNOWN : piece.id;
    return {tokens: found.map((piece) => piece.text), ids: found.map(id)};
  }

  normalized(text) {
    const bytes = this.rules.encoder.encode(text);
    let place = 0, result = "", afterSpace = this.removesSpaces;
    if (this.removesSpaces) {
      while (place < bytes.length) {
        const [form, length] = this.rules.at(bytes, place);
        if (form !== " ") break;
        place += length;
      }
    }
    if (place === bytes.length) return "";
    if (this.addsSpace) result += SPACE;
    while (place < bytes.length) {
      let [form, length] = this.rules.at(bytes, place);
      place += length;
      if (afterSpace) form = form.replace(/^ +/, "");
      if (form) {
        result += form.replaceAll(" ", SPACE);
        afterSpace = form.endsWith(" ");
      }
      if (!this.removesSpaces) afterSpace = false;
    }
    if (this.removesSpaces) while (result.endsWith(SPACE)) result = result.slice(0, -1);
    return result;
  }

  // Unigram: the cut whose pieces have the largest sum of scores (Viterbi), in 32 bits.
  likeliest(letters) {
    const best = [{score: 0}];
    for (let start = 0; start < letters.length; start++) {
      const before = best[start].score;
      const offer = (end, id, score) => {
        const sum = Math.fround(score + before);
        if (!best[end] || sum > best[end].score) best[end] = {score: sum, start, id};
      };
      let piece = "", single = false;
      for (let end = start + 1; end <= Math.min(letters.length, start + this.longest); end++) {
        piece += letters[end - 1];
        const entry = this.known.get(piece);
        if (entry === undefined) continue;
        offer(end, entry.id, Math.fround(entry.score));
        single ||= end === start + 1;
      }
      if (!single) offer(start + 1, UNKNOWN, this.unknownScore);
    }
    const found = [];
    for (let end = letters.length; end > 0; end = best[end].start) {
      const {start, id} = best[end];
      found.unshift({text: letters.slice(start, end).join(""), id});
    }
    return joinUnknown(found);
  }

  // BPE: of all neighbours that make a piece, those of the highest score are joined first.
  merged(letters) {
    const parts = [...letters];
    for (;;) {
      let place = -1, score = -Infinity;
      for (let n = 0; n + 1 < parts.length; n++) {
        const entry = this.known.get(parts[n] + parts[n + 1]);
        if (entry && entry.score > score) [place, score] = [n, entry.score];
      }
      if (place < 0) break;
      parts.splice(place, 2, parts[place] + parts[place + 1]);
    }
    return joinUnknown(parts.map((text) => ({text, id: this.known.get(text)?.id ?? UNKNOWN})));
  }

  decode(ids) {
    let text = "", isFirst = true;
    for (const id of ids) {
      const piece = this.vocabulary[id];
      let part = piece;
      if (id === UNKNOWN) part = " \u2047 ";
      else if (id < END + 1) part = "";
      else if (!this.hasOwnIds || this.known.has(piece)) {
        if (isFirst && (this.addsSpace || this.removesSpaces) && piece.startsWith(SPACE)) {
          part = piece.slice(1);
          isFirst = this.removesSpaces;
        }
        part = part.replaceAll(SPACE, " ");
      }
      if (part) isFirst = false;
      text += part;
    }
    if (this.hasOwnIds) text = (text.startsWith(SPACE) ? text.slice(1) : text).replaceAll(SPACE, " ");
    return text.normalize("NFC");
  }

  join(tokens) {
    const text = tokens.join("").replaceAll(SPACE, " ");
    return text.startsWith(" ") ? text.slice(1) : text;
  }
}

// A run of unknown pieces is one, as SentencePiece has it.
function joinUnknown(pieces) {
  const found = [];
  for (const piece of pieces) {
    const last = found.at(-1);
    if (last && last.id === UNKNOWN && piece.id === UNKNOWN) last.text += piece.text;
    else found.push(piece);
  }
  return found;
}

class Words {
  constructor(described) {
    Object.assign(this, described);
    const rules = (list) => list.map(([pattern, after]) => [new RegExp(pattern, "gu"), after]);
    [this.splitRules, this.joinRules] = [rules(described.splitRules), rules(described.joinRules)];
    this.lower = new Map(Object.entries(described.lower));
    this.ids = new Map(this.vocabulary.slice(END + 1).map((word, n) => [word, n + END + 1]));
  }

  apply(rules, text) {
    return rules.reduce((found, [pattern, after]) => found.replace(pattern, after), text);
  }

  encode(line) {
    const small = [...line].map((letter) => this.lower.get(letter) ?? letter).join("");
    const text = this.apply(this.splitRules, small.normalize("NFC"));
    const tokens = text ? text.split(" ") : [];
    return {tokens, ids: tokens.map((token) => this.ids.get(token) ?? UNKNOWN)};
  }

  decode(ids) {
    return this.join(ids.map((id) => this.vocabulary[id]));
  }

  join(tokens) {
    return this.apply(this.joinRules, tokens.join(" "));
  }
}

const tokenizerOf = (described) => new (described.kind === "words" ? Words : Pieces)(described);

// ---- Arithmetic.

class Matrix {
  constructor(values, rows, columns, scale) {
    Object.assign(this, {values, rows, columns, scale});
  }

  row(n) {
    const row = Float64Array.from(this.values.subarray(n * this.columns, (n + 1) * this.columns));
    return this.scale === 1 ? row : row.map((value) => Math.fround(value / this.scale));
  }

  // x W, and the bias.
  times(x, bias) {
    const {values, rows, columns, scale} = this, result = new Float64Array(columns);
    for (let i = 0, at = 0; i < rows; i++, at += columns) {
      const factor = x[i];
      if (factor === 0) continue;  // many, after a relu
      for (let j = 0; j < columns; j++) result[j] += factor * values[at + j];
    }
    if (scale !== 1) for (let j = 0; j < columns; j++) result[j] /= scale;
    if (bias) for (let j = 0; j < columns; j++) result[j] += bias[j];
    return result;
  }

  // W x: the product of each row with x.
  timesColumn(x) {
    const {values, rows, columns, scale} = this, result = new Float64Array(rows);
    for (let i = 0, at = 0; i < rows; i++, at += columns) {
      let sum = 0;
      for (let j = 0; j < columns; j++) sum += values[at + j] * x[j];
      result[i] = sum / scale;
    }
    return result;
  }
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const ACTIVATIONS = {
  relu: (x) => Math.max(0, x), silu: (x) => x * sigmoid(x), sigmoid,
  gelu: (x) => x * (1 + errorFunction(x / Math.SQRT2)) / 2,
};
const add = (x, y) => x.map((value, n) => value + y[n]);

// Abramowitz and Stegun, 7.1.26: right to 1.5e-7.
function errorFunction(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

function joined(...vectors) {
  const result = new Float64Array(vectors.reduce((sum, each) => sum + each.length, 0));
  let place = 0;
  for (const each of vectors) {
    result.set(each, place);
    place += each.length;
  }
  return result;
}

// The weights of positions; those that are masked have none, and where all are, no position has.
function softmax(scores, isMasked = []) {
  const most = Math.max(...scores.filter((_, n) => !isMasked[n]));
  const powers = scores.map((score, n) => (isMasked[n] ? 0 : Math.exp(score - most)));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => (sum ? power / sum : 0));
}

function mean(weights, vectors, first, size) {
  const result = new Float64Array(size);
  weights.forEach((weight, n) => {
    for (let j = 0; j < size; j++) result[j] += weight * vectors[n][first + j];
  });
  return result;
}

// ---- The networks: `start(ids, changes)` gives the state before the first word, and `step(word,
// state, index)` the scores of the words and, for the page, the weights and energies of attention.
// `changes` are a temperature, by which energies are divided, and positions that are masked.

class RNNSearch {
  constructor(tensors) {
    this.t = tensors;
  }

  // The GRU of Cho et al. (2014), as keras.layers.GRUCell(reset_after=False) has it.
  gru(projected, state, gates, candidate) {
    const units = state.length, open = gates.times(state).map((x, n) => sigmoid(x + projected[n]));
    const recurrent = candidate.times(state.map((x, n) => x * open[units + n]));
    return state.map((x, n) => {
      const fresh = Math.tanh(projected[2 * units + n] + recurrent[n]);
      return fresh + open[n] * (x - fresh);
    });
  }

  start(ids, changes) {
    const t = this.t, units = t["forward.candidate"].rows;
    const words = ids.map((id) => t.encoder.times(t.source.row(id), t["encoder.bias"]));
    const read = (direction, first) => {
      const order = direction === "forward" ? words : [...words].reverse(), found = [];
      let state = new Float64Array(units);
      for (const word of order) {
        const projected = word.subarray(first, first + 3 * units);
        state = this.gru(projected, state, t[`${direction}.gates`], t[`${direction}.candidate`]);
        found.push(state);
      }
      return direction === "forward" ? found : found.reverse();
    };
    const forward = read("forward", 0), backward = read("backward", 3 * units);
    const annotations = forward.map((state, n) => joined(state, backward[n]));
    const keys = annotations.map((h) => t["attention.key"].times(h, t["attention.key.bias"]));
    const state = t.first.times(backward[0], t["first.bias"]).map(Math.tanh);
    return {annotations, keys, state, changes};
  }

  step(word, before, index) {
    const t = this.t, {annotations, keys, state, changes} = before, vector = t["attention.score"];
    const query = t["attention.query"].times(state);
    const energies = keys.map((key) =>
      vector.reduce((sum, v, n) => sum + v * Math.tanh(query[n] + key[n]), 0) / changes.temperature);
    const weights = softmax(energies, changes.masked);
    const context = mean(weights, annotations, 0, annotations[0].length);
    const embedded = t.target.row(word);
    const projected = t.cell.times(joined(embedded, context), t["cell.bias"]);
    const after = this.gru(projected, state, t["cell.gates"], t["cell.candidate"]);
    const sums = t.readout.times(joined(state, embedded, context), t["readout.bias"]);
    const features = Float64Array.from({length: sums.length / 2},
      (_, n) => Math.max(sums[2 * n], sums[2 * n + 1]));
    return {features, weights, energies, after: {...before, state: after}};
  }
}

class Transformer {
  constructor(tensors, settings) {
    Object.assign(this, settings);
    this.t = tensors;
    this.size = tensors.source.columns;
    this.headSize = this.size / this.heads;
  }

  embedded(table, id, position) {
    const half = Math.ceil(this.size / 2), steps = this.endpoint ? Math.max(1, half - 1) : this.size / 2;
    return table.row(id).map((value, n) => {
      const [place, isCosine] = this.halves ? [n % half, n >= half] : [n >> 1, n % 2];
      const angle = Math.fround(position * Math.fround(this.maxWavelength ** (-place / steps)));
      return value * this.scale + (isCosine ? Math.cos(angle) : Math.sin(angle));
    });
  }

  norm(x, name) {
    const gamma = this.t[`${name}.gamma`], beta = this.t[`${name}.beta`];
    const middle = x.reduce((a, b) => a + b, 0) / x.length;
    const variance = x.reduce((sum, value) => sum + (value - middle) ** 2, 0) / x.length;
    const factor = 1 / Math.sqrt(variance + this.epsilon);
    return x.map((value, n) => (value - middle) * factor * gamma[n] + beta[n]);
  }

  // A sublayer with what it reads added, normalised before or after.
  residual(x, name, sublayer) {
    return this.isPre ? add(x, sublayer(this.norm(x, name))) : this.norm(add(x, sublayer(x)), name);
  }

  project(name, x) {
    return this.t[name].times(x, this.t[`${name}.bias`]);
  }

  // The context of a query, and the weights and energies of each head.
  attend(name, query, keys, values, changes = {temperature: 1, masked: []}) {
    const size = this.headSize, found = {weights: [], energies: []}, contexts = [];
    for (let first = 0; first < this.size; first += size) {
      const energies = keys.map((key) => {
        let sum = 0;
        for (let n = first; n < first + size; n++) sum += query[n] * key[n];
        return sum / Math.sqrt(size) / changes.temperature;
      });
      const weights = softmax(energies, changes.masked);
      contexts.push(mean(weights, values, first, size));
      found.weights.push(weights);
      found.energies.push(energies);
    }
    return {...found, context: this.project(`${name}.output`, joined(...contexts))};
  }

  feed(x, name) {
    return this.residual(x, `${name}.feed.norm`, (y) => {
      const inner = this.project(`${name}.inner`, y), half = inner.length / 2, f = ACTIVATIONS[this.activation];
      const active = this.isGated
        ? inner.subarray(0, half).map((gate, n) => f(gate) * inner[half + n]) : inner.map((x) => f(x));
      return this.project(`${name}.outer`, active);
    });
  }

  start(ids, changes) {
    const read = this.readsEnd ? [...ids, END] : ids;
    let memory = read.map((id, n) => this.embedded(this.t.source, id, n));
    for (let layer = 0; layer < this.layers; layer++) {
      const name = `encoder.${layer}`;
      const inputs = this.isPre ? memory.map((x) => this.norm(x, `${name}.self.norm`)) : memory;
      const of = (part) => inputs.map((x) => this.project(`${name}.self.${part}`, x));
      const queries = of("query"), keys = of("key"), values = of("value");
      memory = memory.map((x, n) => {
        const {context} = this.attend(`${name}.self`, queries[n], keys, values);
        const sum = add(x, context);
        return this.feed(this.isPre ? sum : this.norm(sum, `${name}.self.norm`), name);
      });
    }
    if (this.isPre) memory = memory.map((x) => this.norm(x, "encoder.norm"));
    const layers = Array.from({length: this.decoderLayers}, (_, layer) => ({
      keys: memory.map((x) => this.project(`decoder.${layer}.cross.key`, x)),
      values: memory.map((x) => this.project(`decoder.${layer}.cross.value`, x)),
      cell: new Float64Array(this.size), ownKeys: [], ownValues: [],
    }));
    return {layers, changes, length: ids.length};
  }

  step(word, before, index) {
    let x = this.embedded(this.t.target, word, index), shown = null;
    const layers = before.layers.map((own, layer) => {
      const name = `decoder.${layer}`, after = {...own};
      x = this.residual(x, `${name}.self.norm`, (y) => this.isSSRU
        ? this.recur(name, y, after) : this.attendToOwn(`${name}.self`, y, after));
      x = this.residual(x, `${name}.cross.norm`, (y) => {
        const query = this.project(`${name}.cross.query`, y);
        const found = this.attend(`${name}.cross`, query, own.keys, own.values, before.changes);
        if (layer === this.shownLayer) shown = found;
        return found.context;
      });
      x = this.feed(x, name);
      return after;
    });
    // One head or the mean of all, without the end token of the source.
    const pick = (heads) => Array.from({length: before.length}, (_, n) => this.shownHead === null
      ? heads.reduce((sum, head) => sum + head[n], 0) / heads.length : heads[this.shownHead][n]);
    const features = this.isPre ? this.norm(x, "decoder.norm") : x;
    const {weights, energies} = {weights: pick(shown.weights), energies: pick(shown.energies)};
    return {features, weights, energies, after: {...before, layers}};
  }

  recur(name, x, state) {
    const products = this.t[`${name}.ssru`].times(x), bias = this.t[`${name}.ssru.bias`];
    state.cell = state.cell.map((kept, n) => {
      const fresh = products[this.size + n];
      return fresh + sigmoid(products[n] + bias[n]) * (kept - fresh);
    });
    return state.cell.map((value) => Math.max(0, value));
  }

  attendToOwn(name, x, state) {
    state.ownKeys = [...state.ownKeys, this.project(`${name}.key`, x)];
    state.ownValues = [...state.ownValues, this.project(`${name}.value`, x)];
    return this.attend(name, this.project(`${name}.query`, x), state.ownKeys, state.ownValues).context;
  }
}

// ---- The translator.

class Translator {
  constructor(described) {
    const bytes = bytesOf(described.weights).buffer, tensors = {};
    for (const [name, {at, shape, scale}] of Object.entries(described.tensors)) {
      const kind = scale === undefined ? Float32Array : Int8Array, [rows, columns] = shape;
      const values = new kind(bytes, at, rows * (columns ?? 1));
      tensors[name] = columns === undefined ? values : new Matrix(values, rows, columns, scale ?? 1);
    }
    const kinds = {rnnsearch: RNNSearch, transformer: Transformer};
    this.network = new kinds[described.network.kind](tensors, described.network);
    this.kind = described.network.kind;
    this.words = tensors.words;
    this.bias = tensors["words.bias"];
    this.source = tokenizerOf(described.source);
    this.target = described.target === "source" ? this.source : tokenizerOf(described.target);
    this.search = described.search;
    this.replacesUnknown = described.replacesUnknown;
    this.dictionary = new Map(Object.entries(described.dictionary));
    this.example = described.example;
  }

  // The greedy translation of a line.
  translate(line, changes) {
    const writing = this.write(line, changes);
    let found;
    do found = writing.next(); while (!found.done);
    return found.value;
  }

  // The same, with a stop after each step, and what is written until then.
  //
  // `temperature` divides the energies of the attention to the source. `masked` says of each source
  // token whether attention may not read it.
  *write(line, {temperature = 1, masked = []} = {}) {
    const {tokens: sourceTokens, ids} = this.source.encode(line);
    const result = {sourceTokens, unknown: ids.map((id) => id === UNKNOWN), tokens: [], text: "",
      steps: [], alignment: [], tokenLogProbabilities: [], logProbability: 0};
    if (!ids.length) return result;
    const limit = this.limit(ids.length), written = [];
    let state = this.network.start(ids, {temperature, masked}), last = START;
    for (let index = 0; index < limit && last !== END; index++) {
      const {features, weights, energies, after} = this.network.step(last, state, index);
      const logProbabilities = this.logProbabilities(features);
      last = this.choice(logProbabilities, written);
      written.push(last);
      state = after;
      result.tokenLogProbabilities.push(logProbabilities[last]);
      result.logProbability += logProbabilities[last];
      result.steps.push({word: last, weights: [...weights], energies: [...energies],
        best: this.best(logProbabilities, 3)});
      this.finish(result, written);
      yield result;
    }
    return result;
  }

  // Put what was written into a result as tokens and text.
  finish(result, written) {
    const found = written.filter((id) => id !== END), {sourceTokens} = result;
    result.alignment = result.steps.slice(0, found.length).map((step) => step.weights);
    result.tokens = found.map((id, row) => id !== UNKNOWN || !this.replacesUnknown
      ? this.target.vocabulary[id] : this.replacement(sourceTokens, result.alignment[row]));
    result.text = this.replacesUnknown ? this.target.join(result.tokens) : this.target.decode(found);
  }

  limit(length) {
    const {maxLength, maxLengthRatio, minLength} = this.search;
    const longest = Math.max(minLength + 1, maxLength);
    if (maxLengthRatio === null) return longest;
    const words = Math.fround(length * Math.fround(maxLengthRatio));
    return Math.min(longest, Math.max(minLength + 1, Math.ceil(Math.min(words, longest)) + SPARE_TOKENS));
  }

  logProbabilities(features) {
    const logits = this.words.timesColumn(features);
    let most = -Infinity, sum = 0;
    for (let n = 0; n < logits.length; n++) {
      logits[n] = n === PAD || n === START ? -Infinity : logits[n] + this.bias[n];
      if (logits[n] > most) most = logits[n];
    }
    for (let n = 0; n < logits.length; n++) sum += Math.exp(logits[n] - most);
    const normalizer = most + Math.log(sum);
    for (let n = 0; n < logits.length; n++) logits[n] -= normalizer;
    return logits;
  }

  // The likeliest word that may follow; of equal ones the first.
  choice(logProbabilities, written) {
    const {minLength, noRepeatNgram: size} = this.search, forbidden = new Set();
    if (size) {
      for (let end = size - 1; end < written.length; end++) {
        const repeats = Array.from({length: size - 1}, (_, n) => n + 1)
          .every((back) => written[end - back] === written[written.length - back]);
        if (repeats) forbidden.add(written[end]);
      }
    }
    if (written.length < minLength) forbidden.add(END);
    let best = END, most = -Infinity;
    logProbabilities.forEach((value, id) => {
      if (value > most && !forbidden.has(id)) [best, most] = [id, value];
    });
    return best;
  }

  best(logProbabilities, count) {
    const found = [];
    logProbabilities.forEach((value, id) => {
      if (found.length === count && value <= found.at(-1).value) return;
      found.push({id, value});
      found.sort((a, b) => b.value - a.value || a.id - b.id);
      found.length = Math.min(found.length, count);
    });
    return found.map(({id, value}) => ({word: this.target.vocabulary[id], probability: Math.exp(value)}));
  }

  replacement(sourceTokens, weights) {
    const most = Math.max(...weights);
    if (!(most > 0)) return this.target.vocabulary[UNKNOWN];
    const word = sourceTokens[weights.indexOf(most)];
    return this.dictionary.get(word) ?? word;
  }
}

self.kerasAttention = {Translator, SPACE, tokenizerOf};
})();
