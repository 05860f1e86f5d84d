// Runs a bundle that was made with --target wasm --weights embedded and linked to NAME.wasm.

const TYPES = { f32: Float32Array, f64: Float64Array, i8: Int8Array, u8: Uint8Array, bool: Uint8Array, i32: Int32Array, i64: BigInt64Array };

export class Network {
  /** What `bytes` (of NAME.wasm) compute, with `manifest` (NAME.json) saying where everything lies. */
  static async load(bytes, manifest) {
    const { instance } = await WebAssembly.instantiate(bytes);
    return new Network(instance.exports, manifest);
  }

  constructor(exports, manifest) {
    const { mutable, activations } = manifest.areas;
    const aligned = (address) => Math.ceil(address / manifest.alignment) * manifest.alignment;
    this.exports = exports;
    this.name = manifest.networks[0].name;
    this.symbols = manifest.networks[0].symbols.filter((symbol) => symbol.role !== 'constant');
    this.mutable = aligned(exports.__heap_base.value);
    this.activations = aligned(this.mutable + mutable);
    const missing = this.activations + activations - exports.memory.buffer.byteLength;
    if (missing > 0) exports.memory.grow(Math.ceil(missing / 65536));
    const status = exports[`${manifest.name}_check_weights`](exports[`${manifest.name}_constants`].value);
    if (status) throw new Error(`the weights are damaged (status ${status})`);
    this.constants = exports[`${manifest.name}_constants`].value;
  }

  /** The memory of an input or output, by its name in the model. */
  array(name) {
    const symbol = this.symbols.find(({ original }) => original === name);
    if (!symbol) throw new Error(`no input or output is called ${name}`);
    const type = TYPES[/^\w+/.exec(symbol.type)[0]];
    return new type(this.exports.memory.buffer, this.mutable + symbol.offset, symbol.size / type.BYTES_PER_ELEMENT);
  }

  /** Computes the outputs from what the inputs hold now. */
  run() {
    const status = this.exports[this.name](this.constants, this.mutable, this.activations);
    if (status) throw new Error(`${this.name} failed (status ${status})`);
  }
}
