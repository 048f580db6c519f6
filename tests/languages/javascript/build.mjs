// build.mjs WIT OUTPUT: makes the component, with the default settings of the toolchain: no feature of JavaScript is disabled.
import { componentize } from '@bytecodealliance/componentize-js';
import { writeFile } from 'node:fs/promises';

const [witPath, output] = process.argv.slice(2);
const { component } = await componentize({ sourcePath: 'announce.js', witPath, worldName: 'chained-command' });
await writeFile(output, component);
