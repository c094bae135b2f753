#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <string>

#include "registry/formats/images/formats.h"
#include "registry/language/error.h"

namespace trainrun::images {
namespace {

const uint8_t* bytes_of_webp(std::string_view file) { return reinterpret_cast<const uint8_t*>(file.data()); }

WebPBitstreamFeatures features_of(std::string_view file) {
  WebPBitstreamFeatures features;
  const VP8StatusCode code = WebPGetFeatures(bytes_of_webp(file), file.size(), &features);
  if (code == VP8_STATUS_NOT_ENOUGH_DATA) throw DataError("the WebP is cut off");
  if (code != VP8_STATUS_OK) throw DataError("the WebP is damaged");
  require_sensible({features.height, features.width});
  return features;
}

at::Tensor first_picture(std::string_view file) {
  const WebPData data = {bytes_of_webp(file), file.size()};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(WebPAnimDecoderNew(&data, nullptr),
                                                                             WebPAnimDecoderDelete);
  WebPAnimInfo info;
  uint8_t* picture = nullptr;  // the decoder's
  int time = 0;
  if (!decoder || !WebPAnimDecoderGetInfo(decoder.get(), &info) ||
      !WebPAnimDecoderGetNext(decoder.get(), &picture, &time)) {
    throw DataError("the animated WebP is damaged or cut off");
  }
  at::Tensor image = empty_image({info.canvas_height, info.canvas_width}, 3);
  uint8_t* to = image.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < image.numel() / 3; ++i, picture += 4) {
    for (int c = 0; c < 3; ++c) *to++ = picture[c];
  }
  return image;
}

}  // namespace

at::Tensor decode_webp(std::string_view file, int64_t) {
  const WebPBitstreamFeatures features = features_of(file);
  if (features.has_animation) return first_picture(file);
  at::Tensor image = empty_image({features.height, features.width}, 3);
  if (!WebPDecodeRGBInto(bytes_of_webp(file), file.size(), image.mutable_data_ptr<uint8_t>(), image.nbytes(),
                         features.width * 3)) {
    throw DataError("the WebP is damaged or cut off");
  }
  return image;
}

}  // namespace trainrun::images
