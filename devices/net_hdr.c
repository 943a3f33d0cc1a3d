/*
 * virtio_net_hdr: what it may say, and to whom (virtio 1.2, "Packet Transmission", "Processing of
 * Incoming Packets").
 *
 * From the guest: only what was negotiated reaches the tap, offsets lie in the frame, and hdr_len,
 * a mere hint that the kernel refuses when it is wrong, is dropped when it is wrong.  The rest,
 * whether the frame really is what the header calls it, the kernel checks, since it does the
 * segmenting.
 *
 * To the guest: the tap was told what the driver takes, but frames may have been queued before
 * that, and another VM at the end of a cable may say anything.
 */
#include "devices/net_internal.h"

#include <linux/if_ether.h>

/* Bits and values newer than some headers. */
enum {
	F_GUEST_USO4 = 54,
	F_GUEST_USO6 = 55,
	F_HOST_USO = 56,
	GSO_UDP_L4 = 5,
};

static const struct {
	unsigned offload, guest_bit, host_bit;
} feature_bits[] = {
	{ TUN_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_CSUM },
	{ TUN_F_TSO4, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_HOST_TSO4 },
	{ TUN_F_TSO6, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_HOST_TSO6 },
	{ TUN_F_TSO_ECN, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_HOST_ECN },
	{ TUN_F_UFO, VIRTIO_NET_F_GUEST_UFO, VIRTIO_NET_F_HOST_UFO },
	{ TUN_F_USO4, F_GUEST_USO4, F_HOST_USO },
	{ TUN_F_USO6, F_GUEST_USO6, F_HOST_USO },
};

#define N_BITS (sizeof(feature_bits) / sizeof(feature_bits[0]))

/*
 * What a driver took without the bit it rests on (virtio 1.2, "Feature bit requirements") it does not
 * get: a tap takes no such set.
 */
static unsigned with_their_needs(unsigned offloads)
{
	if (!(offloads & TUN_F_CSUM))
		return 0;
	if (!(offloads & (TUN_F_TSO4 | TUN_F_TSO6)))
		offloads &= ~(unsigned)TUN_F_TSO_ECN;
	return offloads;
}

/* The header does not tell USO over IPv4 from IPv6: a driver that takes but one gets none. */
unsigned net_offloads_rx(uint64_t features)
{
	unsigned offloads = 0;

	for (unsigned i = 0; i < N_BITS; i++)
		if (features >> feature_bits[i].guest_bit & 1)
			offloads |= feature_bits[i].offload;
	if ((offloads & TAP_USO) != TAP_USO)
		offloads &= ~(unsigned)TAP_USO;
	return with_their_needs(offloads);
}

unsigned net_offloads_tx(uint64_t features)
{
	unsigned offloads = 0;

	for (unsigned i = 0; i < N_BITS; i++)
		if (features >> feature_bits[i].host_bit & 1)
			offloads |= feature_bits[i].offload;
	return with_their_needs(offloads);
}

uint64_t net_features_rx(unsigned offloads)
{
	uint64_t features = 0;

	for (unsigned i = 0; i < N_BITS; i++)
		if (offloads & feature_bits[i].offload)
			features |= 1ULL << feature_bits[i].guest_bit;
	return features;
}

uint64_t net_features_tx(unsigned offloads)
{
	uint64_t features = 0;

	for (unsigned i = 0; i < N_BITS; i++)
		if (offloads & feature_bits[i].offload)
			features |= 1ULL << feature_bits[i].host_bit;
	return features;
}

static bool gso_fits(const struct virtio_net_hdr_v1 *h, unsigned offloads)
{
	unsigned type = h->gso_type & ~(unsigned)VIRTIO_NET_HDR_GSO_ECN, needs;
	bool tcp = false;

	switch (type) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return h->gso_type == VIRTIO_NET_HDR_GSO_NONE;
	case VIRTIO_NET_HDR_GSO_TCPV4:
		needs = TUN_F_TSO4;
		tcp = true;
		break;
	case VIRTIO_NET_HDR_GSO_TCPV6:
		needs = TUN_F_TSO6;
		tcp = true;
		break;
	case VIRTIO_NET_HDR_GSO_UDP:
		needs = TUN_F_UFO;
		break;
	case GSO_UDP_L4:
		needs = TUN_F_USO4;
		break;
	default:
		return false;
	}
	if (h->gso_type & VIRTIO_NET_HDR_GSO_ECN) {
		if (!tcp)
			return false;
		needs |= TUN_F_TSO_ECN;
	}
	return (offloads & needs) == needs && h->gso_size > 0;
}

static bool csum_fits(const struct virtio_net_hdr_v1 *h, size_t len, unsigned offloads)
{
	if (!(h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
		return true;
	return (offloads & TUN_F_CSUM) &&
	       (size_t)h->csum_start + h->csum_offset + sizeof(uint16_t) <= len;
}

bool net_hdr_fit_tx(struct virtio_net_hdr_v1 *h, size_t len, unsigned offloads)
{
	h->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
	if (h->hdr_len < ETH_HLEN || h->hdr_len > len)
		h->hdr_len = 0;
	h->num_buffers = 0;
	return csum_fits(h, len, offloads) && gso_fits(h, offloads);
}

bool net_hdr_fit_rx(struct virtio_net_hdr_v1 *h, size_t len, unsigned offloads)
{
	if (!csum_fits(h, len, offloads) || !gso_fits(h, offloads))
		return false;
	if (h->hdr_len > len)
		h->hdr_len = 0;
	if (offloads & TUN_F_CSUM)
		h->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID;
	else
		h->flags = 0;
	return true;
}
