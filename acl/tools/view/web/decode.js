// Unpacks the page's data, which pack.py packed, to typed arrays. No DOM: it runs in the worker.

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f64: Float64Array };

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function gunzip(bytes) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old for the page: it has no DecompressionStream");
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Returns one column: planes of bytes, lowest first; a rising column is stored as differences.
function columnOf(about, bytes, from) {
  const { count, width, rising } = about;
  const values = new ARRAYS[about.kind](count);
  let last = 0;
  for (let i = 0; i < count; i++) {
    let value = 0;
    for (let plane = width - 1; plane >= 0; plane--) value = value * 256 + bytes[from + plane * count + i];
    last = rising ? last + value : value;
    values[i] = last;
  }
  return values;
}

export async function unpack(text) {
  const bytes = await gunzip(bytesOfBase64(text.trim()));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const meta = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const columns = {};
  let from = 4 + length;
  for (const about of meta.columns) {
    columns[about.name] = columnOf(about, bytes, from);
    from += about.count * about.width;
  }
  return { meta, columns };
}
