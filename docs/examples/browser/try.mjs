// The same without a browser: node try.mjs FOLDER runs FOLDER/mlp.wasm on a ramp and prints what comes out.
import { readFile } from 'node:fs/promises';
import { Network } from './network.mjs';

const folder = process.argv[2];
const manifest = JSON.parse(await readFile(`${folder}/mlp.json`, 'utf8'));
const network = await Network.load(await readFile(`${folder}/mlp.wasm`), manifest);
network.array('x').forEach((_, i, x) => { x[i] = (i % 17) / 16; });
network.run();
console.log('y:', Array.from(network.array('y'), (number) => number.toFixed(6)).join(' '));
