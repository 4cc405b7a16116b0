// What the attention explorer shows, read from the blocks of a page. A live explorer brings a provider of its own with the
// same members:
//   models       [{ name, units: [{ name, depth, heads, averaged, tokens, queries: { rows, columns, count }, keys }] }]
//   images       [{ label, labelled, width, height }]; `labelled` is false if the label is only a number
//   picture(image)                    promise of something a canvas can draw
//   predictions(model, image)         promise of { top: [[name, share]], label: [name, share, rank] | null, unmarked } or null
//   maps(model, unit, image, query)   promise of the shares of all keys, one Float32Array for each head
// Models, units and images are numbers; among queries and keys the tokens without a place come first, then the grid.

const LEVELS = 63; // as in attention.py
const SQUARES = Float32Array.from({ length: LEVELS + 1 }, (_, level) => (level / LEVELS) ** 2);

class PageMaps {
  constructor(meta) {
    const { labels, labelled, width, height, raw } = meta.images;
    this.models = meta.models;
    this.raw = raw;
    this.images = labels.map((label, i) => ({ label, labelled: labelled[i], width, height }));
    this.pictures = new Map();
    this.scales = new Map();
  }

  picture(image) {
    if (!this.pictures.has(image)) this.pictures.set(image, this.decode(image));
    return this.pictures.get(image);
  }

  async decode(image) {
    const data = await bytes(`attention-image-${image}`);
    if (!this.raw) return createImageBitmap(new Blob([data], { type: "image/jpeg" }));
    const { width, height } = this.images[image];
    const pixels = new ImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      pixels.data.set(data.subarray(3 * i, 3 * i + 3), 4 * i);
      pixels.data[4 * i + 3] = 255;
    }
    return createImageBitmap(pixels);
  }

  async predictions(model, image) {
    const known = this.models[model].predictions;
    return known ? { ...known.images[image], unmarked: known.unmarked } : null;
  }

  async maps(model, unit, image, query) {
    const { heads, queries, keys, block } = this.models[model].units[unit];
    const data = await bytes(block);
    const rows = this.images.length * heads * queries.count;
    if (!this.scales.has(block)) this.scales.set(block, floats(data, rows));
    const scales = this.scales.get(block);
    return Array.from({ length: heads }, (_, head) => {
      const row = (image * heads + head) * queries.count + query;
      const from = 3 * rows + row * keys.count;
      return Float32Array.from(data.subarray(from, from + keys.count), (level) => SQUARES[level] * scales[row]);
    });
  }
}

/** Decode floats from three planes: all first bytes, all second, all third; the fourth byte is zero. */
function floats(data, count) {
  const bits = Uint32Array.from({ length: count }, (_, i) => (data[i] << 24) | (data[count + i] << 16) | (data[2 * count + i] << 8));
  return new Float32Array(bits.buffer);
}
