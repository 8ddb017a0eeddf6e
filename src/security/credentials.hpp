#pragma once

#include <filesystem>
#include <string>

namespace shardline {

// PEM texts with which a node proves that it belongs to a fleet and checks that others do.
struct Credentials {
    std::string authority;    // the fleet's CA certificate
    std::string certificate;  // this node's, signed by the CA
    std::string private_key;  // this node's; the file is 0600
};

// A fresh fleet: a CA and one node certificate, valid for `valid_days`, in memory only. Every
// node certificate carries the DNS name kFleetServerName, which clients check instead of host
// names: machines at home have none.
inline constexpr const char* kFleetServerName = "node.shardline.fleet";

// The fleet's own certificate and the key that signs nodes. Whoever holds the key can admit
// machines, so it stays on the host that made the fleet and never goes over the wire.
struct Fleet {
    std::string authority;
    std::string authority_key;
};

// ECDSA P-256 throughout. Both throw Error on a number of days that is not within [1, 36500];
// make_node_credentials also on a node name that is empty or longer than 64 bytes, and on a key
// that does not belong to the fleet's certificate.
Fleet make_fleet(int valid_days);
Credentials make_node_credentials(const Fleet& fleet, const std::string& node_name, int valid_days);

// A directory with ca.pem, node.pem and node.key. load refuses (Error) a missing file, a key that
// does not belong to the certificate, an expired certificate, one of another fleet, and a key
// others can read.
void save_credentials(const Credentials& credentials, const std::filesystem::path& directory);
Credentials load_credentials(const std::filesystem::path& directory);

// A directory with ca.pem and ca.key, with the same checks.
void save_fleet(const Fleet& fleet, const std::filesystem::path& directory);
Fleet load_fleet(const std::filesystem::path& directory);

// Compares in time that depends only on the lengths. For API keys.
bool equal_secrets(const std::string& left, const std::string& right);

}  // namespace shardline
