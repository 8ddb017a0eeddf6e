#include "stage/devices.hpp"

#include <openvino/openvino.hpp>

namespace shardline {

std::vector<DeviceInfo> list_devices() {
    ov::Core core;
    std::vector<DeviceInfo> devices;
    for (const std::string& name : core.get_available_devices()) {
        DeviceInfo device{.name = name, .full_name = "", .capabilities = {}};
        try {
            device.full_name = core.get_property(name, ov::device::full_name);
            device.capabilities = core.get_property(name, ov::device::capabilities);
        } catch (const ov::Exception&) {
            // A driver that answers only part is still worth a line.
            device.full_name += " (driver does not answer)";
        }
        devices.push_back(device);
    }
    return devices;
}

std::string openvino_version() {
    return ov::get_openvino_version().buildNumber;
}

}  // namespace shardline
