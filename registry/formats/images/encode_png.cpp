#include <spng.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "registry/formats/images/encode.h"
#include "registry/language/error.h"

namespace trainrun {

std::string encode_png(const at::Tensor& image, const std::vector<uint8_t>& palette) {
  const auto checked = [](int code) {
    if (code != 0) throw Error(std::string("an image cannot be written as PNG: ") + spng_strerror(code));
  };
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> context(spng_ctx_new(SPNG_CTX_ENCODER), spng_ctx_free);
  if (!context) throw std::bad_alloc();
  checked(spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1));
  spng_ihdr header{};
  header.height = static_cast<uint32_t>(image.size(0));
  header.width = static_cast<uint32_t>(image.size(1));
  header.bit_depth = 8;
  header.color_type = image.size(2) != 1 ? SPNG_COLOR_TYPE_TRUECOLOR
                      : palette.empty()  ? SPNG_COLOR_TYPE_GRAYSCALE
                                         : SPNG_COLOR_TYPE_INDEXED;
  checked(spng_set_ihdr(context.get(), &header));
  if (!palette.empty()) {
    constexpr size_t kMost = 256;
    spng_plte colors{};
    colors.n_entries = static_cast<uint32_t>(std::min(palette.size() / 3, kMost));
    for (size_t i = 0; i < colors.n_entries; ++i) {
      colors.entries[i] = {palette[3 * i], palette[3 * i + 1], palette[3 * i + 2], 255};
    }
    checked(spng_set_plte(context.get(), &colors));
  }
  const at::Tensor pixels = image.contiguous();
  checked(
      spng_encode_image(context.get(), pixels.const_data_ptr(), pixels.nbytes(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  size_t size = 0;
  int code = 0;
  const std::unique_ptr<void, void (*)(void*)> file(spng_get_png_buffer(context.get(), &size, &code), std::free);
  checked(code);
  return {static_cast<const char*>(file.get()), size};
}

}  // namespace trainrun
