#include <turbojpeg.h>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>

#include "registry/formats/images/formats.h"
#include "registry/language/error.h"

namespace trainrun::images {
namespace {

using Decompressor = std::unique_ptr<std::remove_pointer_t<tjhandle>, int (*)(tjhandle)>;

const unsigned char* bytes_of(std::string_view file) { return reinterpret_cast<const unsigned char*>(file.data()); }

struct JpegHeader {
  ImageSize size;
  int colorspace = TJCS_YCbCr;
};

[[noreturn]] void throw_damaged(const Decompressor& decompressor) {
  throw DataError(std::string("the JPEG is damaged: ") + tjGetErrorStr2(decompressor.get()));
}

JpegHeader read_header(const Decompressor& decompressor, std::string_view file) {
  int width = 0, height = 0, subsampling = 0;
  JpegHeader header;
  if (tjDecompressHeader3(decompressor.get(), bytes_of(file), file.size(), &width, &height, &subsampling,
                          &header.colorspace) != 0 &&
      tjGetErrorCode(decompressor.get()) != TJERR_WARNING) {
    throw_damaged(decompressor);
  }
  if (height <= 0 || width <= 0) throw DataError("the JPEG has no size: its first part is missing or damaged");
  header.size = {height, width};
  require_sensible(header.size);
  return header;
}

/// This thread's, where it has one that is not in use: making one takes as long as decoding a small picture.
Decompressor& kept_decompressor() {
  thread_local Decompressor kept(nullptr, tjDestroy);
  return kept;
}

Decompressor take_decompressor() {
  Decompressor decompressor = std::move(kept_decompressor());
  if (!decompressor) decompressor.reset(tjInitDecompress());
  if (!decompressor) throw Error("libjpeg-turbo cannot be started");
  return decompressor;
}

/// Of the four inks, which files of Adobe's programs, and so nearly all, hold inverted.
at::Tensor rgb_of_inks(const at::Tensor& inks) {
  constexpr int kFull = 255, kHalf = 128, kBits = 8;
  at::Tensor rgb = empty_image({inks.size(0), inks.size(1)}, 3);
  const uint8_t* from = inks.const_data_ptr<uint8_t>();
  uint8_t* to = rgb.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < inks.size(0) * inks.size(1); ++i, from += 4) {
    const int light = from[3];
    for (int ink = 0; ink < 3; ++ink) {
      const int product = (kFull - from[ink]) * light + kHalf;
      const int share = ((product >> kBits) + product) >> kBits;  // of 255, rounded
      *to++ = static_cast<uint8_t>(std::max(light - share, 0));
    }
  }
  return rgb;
}

}  // namespace

at::Tensor decode_jpeg(std::string_view file, int64_t channels) {
  Decompressor decompressor = take_decompressor();
  const JpegHeader header = read_header(decompressor, file);
  const bool is_gray = header.colorspace == TJCS_GRAY && channels == 1;
  const bool has_inks = header.colorspace == TJCS_CMYK || header.colorspace == TJCS_YCCK;
  const int64_t decoded = is_gray ? 1 : has_inks ? 4 : 3;  // channels
  at::Tensor image = empty_image(header.size, decoded);
  const int format = is_gray ? TJPF_GRAY : has_inks ? TJPF_CMYK : TJPF_RGB;
  // A warning counts where the file ends too early; other blemishes Pillow does not mind either.
  if (tjDecompress2(decompressor.get(), bytes_of(file), file.size(), image.mutable_data_ptr<uint8_t>(),
                    static_cast<int>(header.size.width), static_cast<int>(header.size.width * decoded),
                    static_cast<int>(header.size.height), format, TJFLAG_ACCURATEDCT) != 0) {
    const std::string_view said = tjGetErrorStr2(decompressor.get());
    if (tjGetErrorCode(decompressor.get()) != TJERR_WARNING) throw_damaged(decompressor);
    if (said.find("remature end") != std::string_view::npos) throw DataError("the JPEG is cut off");
  } else {
    kept_decompressor() = std::move(decompressor);  // after an error it may take the next file for damaged, too
  }
  return has_inks ? rgb_of_inks(image) : image;
}

}  // namespace trainrun::images
