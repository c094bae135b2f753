#include <cstdio>

#include "runner/base/text.h"
#include "runner/report/profile.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

constexpr double kMilli = 1e-3;

std::string fixed(double number, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, number);
  return text;
}

std::string milliseconds(double seconds) { return fixed(seconds / kMilli, 3); }

}  // namespace

std::string to_text(const Profile& profile) {
  using Align = TextTable::Align;
  const auto share = [&](double seconds) { return fixed(100 * seconds / profile.step, 1) + " %"; };
  TextTable table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  table.add({"layer", "type", "forward", "backward", "of the step"});
  table.add_rule();
  double forward = 0;
  double backward = 0;
  for (const LayerTime& layer : profile.layers) {
    forward += layer.forward;
    backward += layer.backward;
    table.add({layer.name, layer.type, milliseconds(layer.forward), milliseconds(layer.backward),
               share(layer.forward + layer.backward)});
  }
  table.add_rule();
  table.add({"layers", "", milliseconds(forward), milliseconds(backward), share(forward + backward)});
  table.add({"loss", "", milliseconds(profile.loss), "", share(profile.loss)});
  table.add({"optimizer", profile.optimizer, milliseconds(profile.optimizing), "", share(profile.optimizing)});
  table.add({"data", "", milliseconds(profile.data), "", share(profile.data)});
  table.add({"rest", "", milliseconds(profile.rest), "", share(profile.rest)});
  table.add({"step", "", milliseconds(profile.step), "", ""});
  return profile.name + " (" + profile.path + "): milliseconds of a step of " + fixed(profile.samples, 0) +
         " samples, mean of " + grouped(profile.steps) + " steps on " + profile.device + "\n\n" + table.to_string() +
         "page faults: " + fixed(profile.faults, 1) + " a step\n";
}

ordered_json to_json(const Profile& profile) {
  ordered_json layers = ordered_json::array();
  for (const LayerTime& layer : profile.layers) {
    layers.push_back(
        {{"name", layer.name}, {"type", layer.type}, {"forward", layer.forward}, {"backward", layer.backward}});
  }
  return {{"name", profile.name},
          {"recipe", profile.path},
          {"device", profile.device},
          {"steps", profile.steps},
          {"samples", profile.samples},
          {"page_faults", profile.faults},
          {"seconds",
           {{"step", profile.step},
            {"layers", layers},
            {"loss", profile.loss},
            {"optimizer", profile.optimizing},
            {"data", profile.data},
            {"rest", profile.rest}}}};
}

}  // namespace trainrun
